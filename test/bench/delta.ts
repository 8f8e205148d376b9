// The download stage of an update by the full asset and by a delta, on lines of several speeds: of a release with some code more, and of
// one with a new Node.

import { open, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { readable } from '../../agent/update/steps/delta.ts'
import { sha256OfFile } from '../../agent/update/steps/verify.ts'
import { sha256Of } from '../../agent/update/trust/release-texts.ts'
import type { Delta } from '../../agent/words/release.ts'
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
import { type Patch, patchesOf } from './patches.ts'
import { end, start, untilListens } from './processes.ts'
import { type Tool, type Tools, writeBundle } from './setup.ts'
import { middle, type Transfer } from './transfer.ts'

export interface OnLine {
  /** Mbit/s, with a round trip of 50 ms; null: loopback as it is */
  megabits: number | null
  full: Transfer
  delta: Transfer
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
const NAME = 'bench.delta'

export interface DeltaOptions {
  /** from v1.0.0 to a v1.1.0 with some code more */
  releases: Releases
  place: string
  tools: Tools
  long: boolean
  say: (line: string) => void
}

export async function byDelta(options: DeltaOptions): Promise<DeltaResult> {
  const { releases, place, tools, say } = options
  const { v100, v110, feed } = releases
  const former = 'missing' in tools.formerNode ? null : await onFormerNode(tools.formerNode, v100.tag, place)
  if (former === null) say('update: no delta of another Node: that cannot be fetched')
  await using server = await serveFolder(feed, place, tools)
  const programs = {
    download: await writeBundle('one-download', join(PROJECT, 'test/bench/one-download.ts')),
    line: await writeBundle('line', join(PROJECT, 'test/bench/line.ts')),
  }
  const changes = [await changeOf('an application', v100.executable, server.url, programs, options)]
  if (former !== null) changes.push(await changeOf('Node', former, server.url, programs, options))
  await rm(join(feed, NAME))
  return { assetBytes: v110.assetBytes, changes }
}

interface Programs {
  download: string
  line: string
}

async function changeOf(
  title: Change['title'],
  old: string,
  url: string,
  programs: Programs,
  options: DeltaOptions,
): Promise<Change> {
  const { releases, place, long, say } = options
  const { executable } = releases.v110
  say(`update: a delta for ${title}`)
  const since = performance.now()
  const bytes = await deltaOf(old, executable)
  const makeMs = Math.round(performance.now() - since)
  await writeFile(join(releases.feed, NAME), bytes)
  const delta = { name: NAME, sizeBytes: bytes.length, sha256: sha256Of(bytes), from: await sha256OfFile(old) }
  const lines: OnLine[] = []
  // the slowest line once: its asset takes five minutes
  for (const [megabits, rounds] of [
    [null, long ? 9 : 3],
    [100, long ? 9 : 3],
    [10, long ? 3 : 1],
    ...(long ? [[1, 1] as const] : []),
  ] as const) {
    say(`update: ${title}, ${megabits === null ? 'loopback' : `${megabits} Mbit/s`}`)
    await using line = await lineTo(url, programs.line, megabits)
    const [full, small]: [Transfer[], Transfer[]] = [[], []]
    for (let i = 0; i < rounds; i++) {
      full.push(await download(programs.download, line.url, old, place, []))
      small.push(await download(programs.download, line.url, old, place, [{ ...delta, url: `${line.url}${NAME}` }]))
    }
    lines.push({ megabits, full: middle(full), delta: middle(small) })
  }
  const patches = long ? await patchesOf(old, executable, options) : []
  return { title, deltaBytes: bytes.length, makeMs, lines, patches }
}

/** By the real stage, in a process of its own. */
async function download(program: string, feed: string, old: string, place: string, deltas: Delta[]): Promise<Transfer> {
  const child = start(process.execPath, [program, feed, old, join(place, 'new'), JSON.stringify(deltas)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  await child.exited
  if (child.child.exitCode !== 0) throw new Error(`the download failed: ${child.output()}`)
  return JSON.parse(child.output()) as Transfer
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
