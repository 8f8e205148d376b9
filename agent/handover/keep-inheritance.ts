// Sets close-on-exec on the descriptors that a predecessor leaves, so that no child of the successor gets them. And puts this process
// first among those that the kernel ends for lack of memory, as long as the predecessor serves beside it.

import type { Inheritance } from '../words/wire.ts'
import { keepFromChildren } from '../sockets/libc.ts'
import { riskMost } from '../sockets/memory.ts'

export function keepInheritance({ channel, listeners, values, gate, memoryRisk }: Inheritance): void {
  for (const fd of Object.values(channel)) keepFromChildren(fd)
  for (const { accept, spare } of listeners) for (const fd of [accept, spare]) keepFromChildren(fd)
  if (values !== undefined) keepFromChildren(values)
  if (gate === undefined && memoryRisk !== undefined) riskMost()
}
