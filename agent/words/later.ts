// What is loaded only when a service needs it: at a start it would cost more than the agent's own code. Modules of Node are part of Node, not
// files beside the executable, so they load even after the disk has changed.

/** What `load` resolves to, loaded at the first question; if that fails, the next question tries again. */
export function onceLoaded<T>(load: () => Promise<T>): () => Promise<T> {
  let loaded: Promise<T> | null = null
  return () =>
    (loaded ??= load().catch((cause: unknown) => {
      loaded = null
      throw cause
    }))
}

/** for tokens, names and sums */
export const nodeCrypto = () => process.getBuiltinModule('node:crypto')

/** asynchronous access to files; a start reads its files synchronously */
export const nodeFiles = () => process.getBuiltinModule('node:fs/promises')
