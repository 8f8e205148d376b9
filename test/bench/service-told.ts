// The bench's service while its operator's program (`update.onOutcome`) is told one thing after the other, and takes none of it.

import { sendLetters } from '../../agent/update/schedule/letters.ts'
import { newMemory } from '../../agent/update/schedule/memory.ts'
import { serve } from './serve.ts'

/** Variable with the program and its arguments, as a JSON list. */
const PROGRAM = 'BENCH_TOLD'
/** of one that hangs, shorter than the real one, so that many are ended while it is measured */
const TIME_MS = 1000

const program = JSON.parse(process.env[PROGRAM] ?? '[]') as string[]
void serve(process.argv.slice(2), 'start-first').then(tell)

async function tell(): Promise<void> {
  const leaving = new AbortController().signal
  const letter = { text: JSON.stringify({ event: 'outcome', report: 'x'.repeat(2000) }), tries: 0, at: 0 }
  for (;;) {
    const memory = { ...newMemory([], Date.now()), letters: [letter] }
    await sendLetters(memory, program, { now: Date.now, leaving, kept: async () => {}, timeMs: TIME_MS })
  }
}
