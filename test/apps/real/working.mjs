// What the clients by fetch have in common: how long they work, and which failures count. It is copied beside each client.mjs.
// A request that ends with the process of the broken release, at most one of each client, is not lost but noted: docs/about/services.md says so.

import { setTimeout as sleep } from 'node:timers/promises'

const NOTES_MAX = 10

/** lines for a person */
export const notes = []

/** Each client does `act(client, number)` again and again, until stdin ends. Resolves to how often that failed. */
export async function work({ clients, pauseMs }, act) {
  let [lost, died, broken, working] = [0, 0, false, true]
  process.stdin.on('data', () => (broken = true)).once('end', () => (working = false))
  const workAs = async (client) => {
    for (let number = 1; working; number++) {
      try {
        await act(client, number)
        if (client === 0 && number === 1) process.stderr.write('working\n')
      } catch (error) {
        if (broken && died < clients && error.cause !== undefined) died++
        else lost++
        noteFailure(`${error.message} ${error.cause?.code ?? error.cause?.message ?? ''}`)
      }
      await sleep(pauseMs)
    }
  }
  await Promise.all(Array.from({ length: clients }, (_, client) => workAs(client)))
  notes.push(`${died} requests ended with the broken release`)
  return lost
}

/** Of failures only the first are kept. */
export function noteFailure(failure) {
  if (notes.length < NOTES_MAX) notes.push(failure)
}

/** Prints one line of JSON, and ends this process. `counts`: `done`, `lost`, `doubled` and `missing`. */
export function tell(counts) {
  process.stdout.write(`${JSON.stringify({ ...counts, notes })}\n`, () => process.exit())
}
