// The download by a process of its own: the executable that runs, run with `--version` and an order. Unpacking and sums, and the memory
// that they take, stay out of the service, which only hears how far they are. That process does what `steps/download.ts` would do here,
// so a kill of either leaves a `.partial`, which nothing ever runs. If it ends without an answer, the service downloads by itself.

import { ANSWER_FD, DEPTH, FETCH_ORDER } from '../disk/orders.ts'
import type { Need } from '../disk/room.ts'
import { imageOf, type ManagedInstall } from '../disk/managed-install.ts'
import { type Ran, runBounded } from '../sockets/bounded.ts'
import { howEnded } from '../words/ended.ts'
import { BatonError, type ErrorCode, reasonOf } from '../words/errors.ts'
import type { Release } from '../words/release.ts'
import type { Progress } from '../words/state.ts'
import { isObject, parsedJson } from '../words/untrusted.ts'
import { afterPrinting } from '../words/wrote.ts'
import type { DownloadOptions } from './steps/download.ts'
import type { Candidate, Steps } from './story.ts'

export interface Fetch extends NonNullable<ManagedInstall['feedAgain']> {
  service: string
  release: Pick<Release, 'asset' | 'deltas' | 'tag'>
  partialPath: string
  installedPath: string
  /** the room that the later steps need */
  needs: Need[]
}

type Done = Pick<Candidate, 'assetSha256' | 'executableSha256'>

/** What the process says, one a line. `bytes`: how many have come over the wire since the last line. */
export interface Heard {
  progress?: Progress
  bytes?: number
  warning?: string
  deltaFailed?: string
  done?: Done
  failed?: { code: ErrorCode; message: string; hint: string | null; members: BatonError['members'] }
}

/** A download has limits of its own, which end it long before. */
const MOST_MS = 24 * 3_600_000
const LINE_MAX = 64 * 1024
const TAIL_MAX = 2000

/** What a download needs of the environment: the way to the feed, and whom to believe. Nothing else of the service's. */
const PASSED =
  'PATH HOME LD_LIBRARY_PATH BATON_NODE NODE_OPTIONS HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy ' +
  'NODE_EXTRA_CA_CERTS NODE_USE_SYSTEM_CA SSL_CERT_FILE SSL_CERT_DIR OPENSSL_CONF ' +
  'GH_TOKEN GITHUB_TOKEN GH_ENTERPRISE_TOKEN GITHUB_ENTERPRISE_TOKEN'

type Told = Pick<DownloadOptions, 'alsoNeeds' | 'onProgress' | 'onDeltaFailed' | 'onReceived'> & {
  warn(line: string): void
}

/** `here`: the same in this process. */
export function makeFetch(
  install: Pick<ManagedInstall, 'disk' | 'places' | 'runningImage' | 'service'>,
  again: NonNullable<ManagedInstall['feedAgain']>,
  told: Told,
  here: Steps['download'],
): Steps['download'] {
  const { disk, places, service } = install
  const { partial: partialPath, executable: installedPath } = places
  return async (release, signal) => {
    const { asset, deltas, tag } = release
    const needs = (await told.alsoNeeds?.()) ?? []
    const fetch: Fetch = { ...again, service, release: { asset, deltas, tag }, partialPath, installedPath, needs }
    const answer = await fetchBy(await imageOf(install), fetch, told, signal).catch(async (cause: unknown) => {
      await disk.remove(partialPath)
      signal?.throwIfAborted()
      if (cause instanceof BatonError) throw cause
      told.warn(
        `the service is downloading ${tag} itself, because the separate download process failed: ${reasonOf(cause)}`,
      )
      return null
    })
    if (answer === null) return await here(release, signal)
    return { path: partialPath, ...answer, [Symbol.asyncDispose]: () => disk.remove(partialPath) }
  }
}

/** Null: the executable knows no such order. Throws the BatonError of a download that has failed. Any other error: the process did not download. */
async function fetchBy(executable: string, fetch: Fetch, told: Told, signal?: AbortSignal): Promise<Done | null> {
  let [done, failed] = [null as Done | null, null as Heard['failed'] | null]
  const hear = (line: string) => {
    const said = parsedJson(line)
    if (!isObject(said)) return
    const { progress, bytes, warning, deltaFailed, ...last } = said as Heard
    if (progress !== undefined) told.onProgress(progress)
    if (bytes !== undefined) told.onReceived?.(bytes)
    if (warning !== undefined) told.warn(warning)
    if (deltaFailed !== undefined) told.onDeltaFailed?.(deltaFailed)
    ;[done, failed] = [last.done ?? done, last.failed ?? failed]
  }
  const passed = PASSED.split(' ').flatMap((name) =>
    process.env[name] === undefined ? [] : [[name, process.env[name]]],
  )
  const ran = await runBounded([executable, '--version'], {
    cwd: '/',
    env: { ...Object.fromEntries(passed), LC_ALL: 'C', [DEPTH]: '1', [FETCH_ORDER]: '1' },
    input: JSON.stringify(fetch),
    timeMs: MOST_MS,
    answer: { fd: ANSWER_FD, max: LINE_MAX, line: hear },
    said: { last: TAIL_MAX },
    group: 'own',
    signal,
  })
  if (failed !== null) {
    const { code, message, hint, members } = failed as NonNullable<Heard['failed']> // set in a callback
    throw new BatonError(code, message, { members, ...(hint !== null && { hint }) })
  }
  if (done === null && ran.code !== 0) throw new Error(endOf(ran))
  return done
}

function endOf({ code, signal, stopped, said }: Ran): string {
  const how = stopped === null ? howEnded(code, signal) : `was stopped (${stopped})`
  return `it ${how}${afterPrinting(said.trim())}`
}
