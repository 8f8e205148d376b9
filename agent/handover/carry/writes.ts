// What is read from an author's writes, to a WebSocket, to a response and to a connection alike.

/** The values of the headers of this name, in the text of a head. */
export function valuesOf(head: string, name: string): string[] {
  return [...head.matchAll(new RegExp(`^${name}:[ \\t]*(.*?)[ \\t]*$`, 'gim'))].map(([, value = '']) => value.trim())
}

/** Calls the callback that may be the last of a write's arguments: the write has been taken. */
export function callBack(args: readonly unknown[]): void {
  const written = args.findLast((value) => typeof value === 'function') as (() => void) | undefined
  if (written !== undefined) process.nextTick(written)
}
