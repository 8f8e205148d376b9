// The one time limit of what is awaited. Must hold: the limit alone keeps no process alive, and leaves no timer behind.

/** Settles as `work` does; throws `fault()` if that takes longer than `ms`. Nothing ends the work. */
export async function inTime<T>(ms: number, work: Promise<T>, fault: () => Error): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  // not `Promise.withResolvers`: Node 20 serves too, and has none
  const late = new Promise<never>((_, reject) => (timer = setTimeout(() => reject(fault()), ms).unref()))
  try {
    return await Promise.race([work, late])
  } finally {
    clearTimeout(timer)
  }
}
