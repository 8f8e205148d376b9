// What a predecessor leaves to this process: the sockets and the channel, as descriptors that are open from the first line on.

import { INHERITANCE, type Inheritance } from '../words/wire.ts'
import { keepFromChildren } from '../sockets/libc.ts'

/** What this process inherits, or null where it is the first of its service. Takes it out of the environment. */
export async function readInheritance(): Promise<Inheritance | null> {
  const text = process.env[INHERITANCE]
  if (text === undefined) return null
  delete process.env[INHERITANCE]
  const inheritance = JSON.parse(text) as Inheritance
  for (const fd of Object.values(inheritance.channel)) keepFromChildren(fd)
  for (const { accept, spare } of inheritance.listeners) {
    keepFromChildren(accept)
    keepFromChildren(spare)
  }
  const { keepLastWords } = await import('./last-words.ts')
  keepLastWords(text) // unless the first code of a release has done so
  return inheritance
}
