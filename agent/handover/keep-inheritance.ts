// No child of a successor gets what its predecessor has left to it.

import type { Inheritance } from '../words/wire.ts'
import { keepFromChildren } from '../sockets/libc.ts'

/** No child gets these descriptors. */
export function keepInheritance({ channel, listeners, values }: Inheritance): void {
  for (const fd of Object.values(channel)) keepFromChildren(fd)
  for (const { accept, spare } of listeners) for (const fd of [accept, spare]) keepFromChildren(fd)
  if (values !== undefined) keepFromChildren(values)
}
