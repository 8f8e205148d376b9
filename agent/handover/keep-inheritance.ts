// Sets close-on-exec on the descriptors that a predecessor leaves, so that no child of the successor gets them.

import type { Inheritance } from '../words/wire.ts'
import { keepFromChildren } from '../sockets/libc.ts'

export function keepInheritance({ channel, listeners, values }: Inheritance): void {
  for (const fd of Object.values(channel)) keepFromChildren(fd)
  for (const { accept, spare } of listeners) for (const fd of [accept, spare]) keepFromChildren(fd)
  if (values !== undefined) keepFromChildren(values)
}
