// What a predecessor leaves to this process: the sockets, the channel and the values, as descriptors that are open from the start.

import { readFileSync } from 'node:fs'
import { INHERITANCE, type Inheritance } from '../words/wire.ts'
import { keepFromChildren } from '../sockets/libc.ts'
import { isGone } from '../sockets/process.ts'

/** What this process inherits; null if it has no predecessor. The predecessor may have died since. */
export function inheritanceHere(): Inheritance | null {
  const text = process.env[INHERITANCE]
  if (text === undefined) return null
  const inheritance = JSON.parse(text) as Inheritance
  const { predecessor } = inheritance
  const isOwn = predecessor.pid === process.ppid || (isGone(predecessor) && !isChildOfSuccessor(text))
  return isOwn ? inheritance : null // else this is a child of the application's
}

/** Whether this process's parent was given the same inheritance: then the parent is the successor. */
function isChildOfSuccessor(text: string): boolean {
  try {
    return readFileSync(`/proc/${process.ppid}/environ`, 'utf8').split('\0').includes(`${INHERITANCE}=${text}`)
  } catch {
    return process.ppid !== 1 // whoever adopts orphans may be another user's
  }
}

/** No child gets these descriptors. */
export function keepInheritance({ channel, listeners, values }: Inheritance): void {
  for (const fd of Object.values(channel)) keepFromChildren(fd)
  for (const { accept, spare } of listeners) for (const fd of [accept, spare]) keepFromChildren(fd)
  if (values !== undefined) keepFromChildren(values)
}

/** As `inheritanceHere`. Removes it from the environment. */
export async function takeInheritance(): Promise<Inheritance | null> {
  const text = process.env[INHERITANCE]
  if (text === undefined) return null
  delete process.env[INHERITANCE]
  const inheritance = JSON.parse(text) as Inheritance
  keepInheritance(inheritance)
  const { keepLastWords } = await import('./last-words.ts')
  keepLastWords(text) // does nothing if the first code of the release has called it already
  return inheritance
}
