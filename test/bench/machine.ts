// What the numbers were measured on. No name of the machine, only what it is.

import { readFile } from 'node:fs/promises'
import { availableParallelism, cpus, release, totalmem } from 'node:os'

export interface Machine {
  processor: string
  processors: number
  memoryGiB: number
  system: string
  kernel: string
  node: string
  date: string
}

export async function describeMachine(): Promise<Machine> {
  const text = await readFile('/etc/os-release', 'utf8').catch(() => '')
  return {
    processor: cpus()[0]?.model.trim() ?? 'unknown',
    processors: availableParallelism(),
    memoryGiB: Math.round(totalmem() / 1024 ** 3),
    system: /^PRETTY_NAME="?([^"\n]*)/m.exec(text)?.[1] ?? process.platform,
    kernel: `${process.platform} ${release().split('.').slice(0, 2).join('.')}`,
    node: process.version,
    date: new Date().toISOString().slice(0, 10),
  }
}
