// What is installed, running, on probation and in flight; and, if asked for, what the feed has. Reads only.

import { installedTag, makeDisk, makeJournal, openFeed, ownRelease, type Receipt } from '../../../agent/install.ts'
import {
  asBatonError,
  badEntry,
  type BadRelease,
  type BatonError,
  type Beyond,
  compareTags,
  type ErrorCode,
  type FeedChoice,
  feedName,
  latestFor,
  reasonOf,
  type NextSwitch,
  type Operation,
  type ScheduleReport,
  type Skip,
  type Skipped,
  type Status,
  type TrustReport,
} from '../../../agent/words.ts'
import { type Client, connect } from './client.ts'
import { callHttp } from '../../lib/http.ts'
import { type Access, feedOf, readAccess, whyNothingAutomatic } from './configuration.ts'
import { badOf } from './advice.ts'
import type { Outside } from './outside.ts'

export interface Look {
  installed: string | null
  running: string | null
  backup: string | null
  state: Status['state'] | null
  operation: Status['operation']
  instance: Status['instance'] | null
  /** HTTP status that the release answers with at its `healthPath`, or why there is none; null: it has no such path, or is not asked */
  health: number | string | null
  probation: Status['probation']
  /** null: not known */
  switch: NextSwitch | null
  /** what it does by itself; null: it does not run, or is older than that */
  schedule: ScheduleReport | null
  /** releases that failed here */
  bad: BadRelease[]
  feed: string
  /** how far the feed is trusted: as the service says, else by the root that this program was built with */
  trust: TrustReport
  /** see `whyNothingAutomatic` */
  stalled: string | null
  /** null if the feed was not asked */
  offer: Offer | null
}

export interface Offer {
  latest: string | null
  updateAvailable: boolean
  skipped: Skipped[]
  /** a newer release takes hosts only from `from` on: `latest` is the way to it; null: there is none */
  beyond: Beyond | null
  /** why `latest` is not known, or why a newer published release cannot be used */
  problem: { code: ErrorCode; message: string } | null
  /** as it is after the feed was asked */
  trust: TrustReport
}

/** Asks the feed only if `check`. */
export async function look(receipt: Receipt, check: boolean, outside: Outside): Promise<Look> {
  const access = await readAccess(receipt.configPath)
  const client = connect(access)
  const [status, health, installed, feed] = await Promise.all([
    client.status(),
    healthOf(access),
    installedTag(receipt.executable).catch(() => null),
    feedOf(receipt),
  ])
  const journal = await makeJournal(makeDisk(), receipt.stateDirectory).read()
  const bad = await badOf(receipt)
  const saved = await installedTag(`${receipt.executable}.backup`).catch(() => null)
  const running = status?.instance.version ?? null
  const offer = check ? await offerOf(receipt, client, running ?? installed, bad, outside) : null
  const trust = offer?.trust ?? status?.trust ?? (await trustOf(receipt, feed, outside))
  return {
    installed,
    running,
    backup: status?.backup ?? saved,
    state: status?.state ?? null,
    operation: lastOf(status ?? journal),
    instance: status?.instance ?? null,
    health: running === null || (running !== ownRelease().tag && !isWell(health)) ? null : health,
    probation: status?.probation ?? null,
    switch: status?.switch ?? null,
    schedule: status?.schedule ?? null,
    bad,
    feed: feedName(feed),
    trust,
    stalled: await whyNothingAutomatic(receipt, trust.signed),
    offer,
  }
}

/** The operation under way or the last one that did something: a look for something newer that found nothing is no news. */
function lastOf({ operation, history }: Pick<Status, 'operation' | 'history'>): Operation | null {
  if (operation?.outcome !== 'up_to_date') return operation
  return history.find(({ outcome }) => outcome !== 'up_to_date') ?? operation
}

export const isWell = (health: Look['health']) => typeof health === 'number' && health >= 200 && health < 300

/** At the path of this program's own release: what another one answers there is its health only if it is well. */
async function healthOf({ address }: Access): Promise<Look['health']> {
  const path = ownRelease().healthPath
  return path === null ? null : await callHttp(address, path).then(({ status }) => status, reasonOf)
}

async function offerOf(
  receipt: Receipt,
  client: Client,
  current: string | null,
  bad: readonly BadRelease[],
  outside: Outside,
): Promise<Offer> {
  const said = await client.check().catch(() => null)
  if (said !== null) {
    const { latest, updateAvailable, skipped, beyond = null, problem, trust } = said
    return { latest, updateAvailable, skipped, beyond, problem, trust }
  }
  const skipped: Skipped[] = []
  await using feed = openFeed(outside.feedAt(await feedOf(receipt)), { service: receipt.service, stateDirectory: null })
  try {
    const failed: Skip = ({ tag, asset }) => {
      const entry = badEntry(bad, tag, asset.sha256)
      if (entry !== null) skipped.push({ tag, sha256: asset.sha256, why: entry.reason, at: entry.at })
      return entry !== null
    }
    const newest = await feed.latest(Object.assign(failed, { from: current }))
    const { beyond = null } = newest
    const latest = latestFor(newest, current)?.tag ?? null
    const updateAvailable = latest !== null && (current === null || compareTags(latest, current) > 0)
    return { latest, updateAvailable, skipped, beyond, problem: problemOf(newest.problem), trust: await feed.trust() }
  } catch (cause) {
    const problem = problemOf(asBatonError(cause, 'check_failed', 'asking the feed'))
    return { latest: null, updateAvailable: false, skipped, beyond: null, problem, trust: await feed.trust() }
  }
}

const problemOf = (error: BatonError | null): Offer['problem'] =>
  error === null ? null : { code: error.code, message: error.message }

/** Does not ask the feed: reports what this host has stored of it. */
async function trustOf(
  { service, stateDirectory }: Receipt,
  choice: FeedChoice,
  outside: Outside,
): Promise<TrustReport> {
  await using feed = openFeed(outside.feedAt(choice), { service, stateDirectory })
  return await feed.trust()
}
