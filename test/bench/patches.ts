// What `zstd --patch-from` and bsdiff make of the same two executables as Baton's delta, and what it takes to apply it.

import { readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { peakOf, start } from './processes.ts'
import type { Tools } from './setup.ts'
import type { Transfer } from './transfer.ts'

export interface Patch {
  title: string
  bytes: number
  makeMs: number
  /** the patch is here, and the new executable is written, not flushed */
  apply: Transfer
}

interface PatchOptions {
  tools: Tools
  place: string
  say: (line: string) => void
}

export async function patchesOf(old: string, made: string, { tools, place, say }: PatchOptions): Promise<Patch[]> {
  const [patch, back] = [join(place, 'patch'), join(place, 'back')]
  const { zstd, bsdiff, bspatch } = tools
  const long = ['--long=27', '-f', '-q']
  const ways: [title: string, make: [Tools['zstd'], string[]], apply: [Tools['zstd'], string[]]][] = [
    [
      'zstd -19 --patch-from',
      [zstd, ['-19', ...long, `--patch-from=${old}`, made, '-o', patch]],
      [zstd, ['-d', ...long, `--patch-from=${old}`, patch, '-o', back]],
    ],
    ['bsdiff', [bsdiff, [old, made, patch]], [bspatch, [old, back, patch]]],
  ]
  const patches: Patch[] = []
  for (const [title, make, apply] of ways) {
    say(`update: ${title}`)
    const [making, applying] = [await timed(...make), await timed(...apply)]
    if (making === null || applying === null) continue
    if (!(await readFile(back)).equals(await readFile(made))) throw new Error(`${title} made something else`)
    patches.push({ title, bytes: (await stat(patch)).size, makeMs: Math.round(making.ms), apply: applying })
  }
  return patches
}

/** Null where there is no such tool. */
async function timed(tool: Tools['zstd'], args: string[]): Promise<Transfer | null> {
  if ('missing' in tool) return null
  const since = performance.now()
  const step = start(tool.path, args, { env: tool.env })
  const peak = peakOf(step)
  await step.exited
  if (step.child.exitCode !== 0) throw new Error(`${tool.path} failed: ${step.output()}`)
  return { ms: Math.round(performance.now() - since), peakKb: peak() }
}
