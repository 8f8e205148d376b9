// The download stage of an update by the full asset and by a delta, on lines of several speeds; and beside Baton's delta, those that
// `zstd --patch-from` and bsdiff make of the same two executables.

import { createHash } from 'node:crypto'
import { open, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { readable } from '../../agent/update/steps/delta.ts'
import { SERVICE_ENTRY, type Releases } from './baton.ts'
import { DEFAULT_SERVICE, definitions } from '../../deploy/make/release.ts'
import { prepareBase } from '../../deploy/make/base.ts'
import { bundle } from '../../deploy/make/bundle.ts'
import { makeDelta } from '../../deploy/make/delta.ts'
import { PROJECT } from '../../deploy/make/place.ts'
import { injectBundle } from '../../deploy/make/sea.ts'
import { stripElf } from '../../deploy/make/strip.ts'
import { freePort } from '../fixtures/install.ts'
import { serveFolder } from './files.ts'
import { end, peakOf, start, untilListens } from './processes.ts'
import { type Tool, type Tools, writeBundle } from './setup.ts'
import { median } from './statistics.ts'

export interface Transfer {
  /** medians */
  ms: number
  peakKb: number
}

export interface OnLine {
  /** Mbit/s, with a round trip of 50 ms; null: loopback as it is */
  megabits: number | null
  full: Transfer
  delta: Transfer
}

export interface Patch {
  title: string
  bytes: number
  makeMs: number
  /** the patch is here, and the new executable is written, not flushed */
  apply: Transfer
}

export interface Change {
  title: 'an application' | 'Node'
  deltaBytes: number
  makeMs: number
  lines: OnLine[]
  patches: Patch[]
}

export interface DeltaResult {
  assetBytes: number
  changes: Change[]
}

const ROUND_TRIP_MS = 50

export interface DeltaOptions {
  /** from v1.0.0 to a v1.1.0 with some code more */
  releases: Releases
  place: string
  tools: Tools
  long: boolean
  say: (line: string) => void
}

export async function byDelta({ releases, place, tools, long, say }: DeltaOptions): Promise<DeltaResult> {
  const { v100, v110, feed } = releases
  const former = 'missing' in tools.formerNode ? null : await onFormerNode(tools.formerNode, v100.tag, place)
  if (former === null) say('update: no delta of another Node: that cannot be fetched')
  await using server = await serveFolder(feed, place, tools)
  const program = await writeBundle('one-download', join(PROJECT, 'test/bench/one-download.ts'))
  const lineProgram = await writeBundle('line', join(PROJECT, 'test/bench/line.ts'))
  const changes: Change[] = []
  for (const [title, old] of [
    ['an application', v100.executable],
    ['Node', former],
  ] as const) {
    if (old === null) continue
    say(`update: a delta for ${title}`)
    const since = performance.now()
    const bytes = await deltaOf(old, v110.executable)
    const makeMs = Math.round(performance.now() - since)
    await writeFile(join(feed, 'bench.delta'), bytes)
    const about = {
      name: 'bench.delta',
      sizeBytes: bytes.length,
      sha256: sumOf(bytes),
      from: sumOf(await readFile(old)),
    }
    const lines: OnLine[] = []
    // the slowest line once: its asset takes five minutes
    for (const [megabits, rounds] of [
      [null, long ? 9 : 3],
      [100, long ? 9 : 3],
      [10, long ? 3 : 1],
      ...(long ? [[1, 1] as const] : []),
    ] as const) {
      say(`update: ${title}, ${megabits === null ? 'loopback' : `${megabits} Mbit/s`}`)
      await using line = await lineTo(server.url, lineProgram, megabits)
      const once = async (isDelta: boolean): Promise<Transfer> => {
        const deltas = isDelta ? [{ ...about, url: `${line.url}bench.delta` }] : []
        const child = start(process.execPath, [program, line.url, old, join(place, 'new'), JSON.stringify(deltas)], {
          stdio: ['ignore', 'pipe', 'inherit'],
        })
        await child.exited
        if (child.child.exitCode !== 0) throw new Error(`the download failed: ${child.output()}`)
        return JSON.parse(child.output()) as Transfer
      }
      const [full, delta]: [Transfer[], Transfer[]] = [[], []]
      for (let i = 0; i < rounds; i++) {
        full.push(await once(false))
        delta.push(await once(true))
      }
      lines.push({ megabits, full: middle(full), delta: middle(delta) })
    }
    const patches = long ? await patchesOf(old, v110.executable, { tools, place, say }) : []
    changes.push({ title, deltaBytes: bytes.length, makeMs, lines, patches })
  }
  await rm(join(feed, 'bench.delta'))
  return { assetBytes: v110.assetBytes, changes }
}

async function deltaOf(from: string, to: string): Promise<Buffer> {
  await using old = await open(from)
  await using made = await open(to)
  return await makeDelta(readable(old, (await stat(from)).size), readable(made, (await stat(to)).size))
}

/** The service of v1.0.0 in the Node before. */
async function onFormerNode(node: Tool, tag: string, place: string): Promise<string> {
  const base = await prepareBase()
  const [stripped, output] = [join(place, 'former-node'), join(place, 'former')]
  const bytes = await readFile(node.path)
  await writeFile(stripped, stripElf(bytes) ?? bytes, { mode: 0o755 })
  const script = await bundle({ entry: SERVICE_ENTRY, define: definitions(DEFAULT_SERVICE, tag) })
  await injectBundle({ ...base, executable: stripped }, Buffer.from(script), output)
  return output
}

async function lineTo(
  url: string,
  program: string,
  megabits: number | null,
): Promise<AsyncDisposable & { url: string }> {
  if (megabits === null) return { url, [Symbol.asyncDispose]: () => Promise.resolve() }
  const port = await freePort()
  const relay = start(process.execPath, [program, ...[port, new URL(url).port, megabits, ROUND_TRIP_MS].map(String)])
  await untilListens(port)
  return { url: `http://127.0.0.1:${port}/`, [Symbol.asyncDispose]: () => end(relay.pid) }
}

type PatchOptions = Pick<DeltaOptions, 'tools' | 'place' | 'say'>

async function patchesOf(old: string, made: string, { tools, place, say }: PatchOptions): Promise<Patch[]> {
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

function sumOf(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex')
}

function middle(some: readonly Transfer[]): Transfer {
  return { ms: Math.round(median(some.map(({ ms }) => ms))), peakKb: median(some.map(({ peakKb }) => peakKb)) }
}
