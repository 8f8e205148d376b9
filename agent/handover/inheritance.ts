// Reads what a predecessor leaves to this process: the sockets and the channel, as descriptors that are open from the start.

import { INHERITANCE, type Inheritance } from '../words/wire.ts'
import { ownValues } from './values.ts'
import { keepFromChildren } from '../sockets/libc.ts'

/** What this process inherits, or null if it has no predecessor. Removes it from the environment. */
export async function readInheritance(): Promise<Inheritance | null> {
  const text = process.env[INHERITANCE]
  if (text === undefined) return null
  ownValues() // reads the variable too
  delete process.env[INHERITANCE]
  const inheritance = JSON.parse(text) as Inheritance
  for (const fd of Object.values(inheritance.channel)) keepFromChildren(fd)
  for (const { accept, spare } of inheritance.listeners) {
    keepFromChildren(accept)
    keepFromChildren(spare)
  }
  const { keepLastWords } = await import('./last-words.ts')
  keepLastWords(text) // does nothing if the first code of the release has called it already
  return inheritance
}
