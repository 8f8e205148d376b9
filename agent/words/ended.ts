// How a process ended, in words. Pure.

/** `exited with code 1`, `was killed by SIGKILL`: what follows the name of the process. Both null: nobody can tell which signal it was. */
export function howEnded(code: number | null, signal: string | null): string {
  return code === null ? `was killed by ${signal ?? 'a signal'}` : `exited with code ${code}`
}
