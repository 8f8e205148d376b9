// Two small readers: of headers in the text of a head, and of the callback among a write's arguments.

/** The values of the headers of this name, in the text of a head. */
export function valuesOf(head: string, name: string): string[] {
  return [...head.matchAll(new RegExp(`^${name}:[ \\t]*(.*?)[ \\t]*$`, 'gim'))].map(([, value = '']) => value.trim())
}

/** Calls the callback that an author may have passed to a write, as if the bytes were written. */
export function callBack(args: readonly unknown[]): void {
  const written = args.findLast((value) => typeof value === 'function') as (() => void) | undefined
  if (written !== undefined) process.nextTick(written)
}
