// Says how far an unpacking is, if it takes long: many small files, or a very large one, take a minute, in which nothing answers.

const EVERY_MS = 5000

interface Teller {
  say(line: string): void
  /** in milliseconds */
  now(): number
}

/** Takes the bytes that are done so far. `what`: such as `shop v1.0.0`. */
export function slowTeller(what: string, totalBytes: number, { say, now }: Teller): (doneBytes: number) => void {
  let saidAt = now()
  return (doneBytes) => {
    if (now() - saidAt < EVERY_MS) return
    saidAt = now()
    const percent = Math.floor((100 * doneBytes) / totalBytes)
    say(`baton: unpacking ${what}, once: ${percent} % of ${Math.round(totalBytes / 1e6)} MB`)
  }
}
