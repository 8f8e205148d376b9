// Loads modules of Node only when a service needs them: at a start they would cost more than the agent's own code. They are part of
// Node, not files beside the executable, so they load even after the disk has changed.

/** for tokens, names and sums */
export const nodeCrypto = () => process.getBuiltinModule('node:crypto')

/** asynchronous access to files; a start reads its files synchronously */
export const nodeFiles = () => process.getBuiltinModule('node:fs/promises')
