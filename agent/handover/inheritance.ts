// What a predecessor leaves to this process: the sockets, the channel and the values, as descriptors that this process starts with.

import { readFileSync } from 'node:fs'
import { INHERITANCE, type Inheritance, type ProcessName } from '../words/wire.ts'

/**
 * What this process inherits; null if it has no predecessor. The predecessor may have died since. `isGone`: says whether a process
 * has released all that it held; by default, whether it is dead.
 */
export function inheritanceHere(isGone: (process: ProcessName) => boolean = hasLeft): Inheritance | null {
  const text = process.env[INHERITANCE]
  if (text === undefined) return null
  const inheritance = JSON.parse(text) as Inheritance
  const { predecessor } = inheritance
  const isOwn = predecessor.pid === process.ppid || (isGone(predecessor) && !isChildOfSuccessor(text))
  return isOwn ? inheritance : null // else this process is a child of the application
}

/** Whether this process's parent was given the same inheritance: then the parent is the successor. */
function isChildOfSuccessor(text: string): boolean {
  try {
    return readFileSync(`/proc/${process.ppid}/environ`, 'utf8').split('\0').includes(`${INHERITANCE}=${text}`)
  } catch {
    return process.ppid !== 1 // the parent may belong to another user: assume a successor, unless it is init, which adopts orphans
  }
}

/** Whether the process is dead, even if its parent has not reaped it yet. */
function hasLeft({ pid }: ProcessName): boolean {
  try {
    return /^.*\) [ZX] /s.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
  } catch {
    return true
  }
}

/**
 * The inheritance in the environment, which it then leaves; null: none. The parent is not checked: the predecessor may have died. From
 * now on no child gets its descriptors, and the last words are kept.
 */
export async function takeInheritance(): Promise<Inheritance | null> {
  const text = process.env[INHERITANCE]
  if (text === undefined) return null
  delete process.env[INHERITANCE]
  const inheritance = JSON.parse(text) as Inheritance
  const [{ keepInheritance }, { keepLastWords }] = await Promise.all([
    import('./keep-inheritance.ts'),
    import('./last-words.ts'),
  ])
  keepInheritance(inheritance)
  keepLastWords(text) // does nothing if the first code of the release has called it already
  return inheritance
}
