// Checks that the feed can be used by the service's user, with the service's environment: of several sources, who answers, and whose bytes
// are the published ones, since an update goes on without the others. And the clock: with a wrong one, certificates cannot be checked.

import { createHash } from 'node:crypto'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { openFeed } from '../../../agent/install.ts'
import {
  type BadRelease,
  badEntry,
  BatonError,
  feedName,
  type FeedSource,
  reasonOf,
  type Release,
  type TrustReport,
} from '../../../agent/words.ts'
import { dateOf } from '../../lib/http.ts'
import { trustIn } from '../../lib/trusted.ts'
import { feedOf, whyNothingAutomatic } from '../service/configuration.ts'
import { badOf } from '../service/advice.ts'
import type { Outside } from '../service/outside.ts'
import { problem, type Finding, ok, type Subject, warning, wrongOf } from './finding.ts'

const CLOCK_TOLERANCE_MS = 5 * 60_000
/** of a folder of releases; one that has more is not looked through */
const FILES_MAX = 5000
/** for the whole asset of each */
const ASK_MS = 60_000

export async function checkFeed(subject: Subject, outside: Outside): Promise<Finding[]> {
  const offer = await newest(subject, outside)
  if (offer === null) return [problem('feed', 'no feed is set', 'set one with `--feed`', 'invalid_settings')]
  const { setting, release, problem: newer, fault, trust, moved } = offer
  if (fault !== null) {
    const code = fault instanceof BatonError ? fault.code : 'check_failed'
    const reason = reasonOf(fault)
    // curl trusts the host's authorities; a service trusts those of Node and of its environment
    const hint = /self.signed|issuer certificate|unable to verify/i.test(reason)
      ? `Node does not trust the feed’s certificate authority: run \`systemctl edit ${subject.layout.service}\`, add \`[Service]\` and \`Environment=NODE_EXTRA_CA_CERTS=FILE\`, then restart the service`
      : 'check that the service’s user can reach the feed from this host, with the service’s environment'
    return [problem('feed', `${setting} cannot be used: ${reason}`, hint, code), await trustFinding(trust, setting)]
  }
  const hint = 'tell the maintainer; if this is a mirror, use the original feed'
  const found =
    newer !== null
      ? warning('feed', `${setting} has ${release?.tag}, but ${newer.message}`, hint)
      : release === null
        ? warning('feed', `${setting} has no release for this host`)
        : offered(setting, release.tag, await failureHere(subject, release))
  const stalled = subject.receipt === null ? null : await whyNothingAutomatic(subject.receipt, trust.signed)
  return [
    found,
    ...(moved === null ? [] : [warning('feed', moved)]),
    await trustFinding(trust, setting),
    ...(stalled === null
      ? []
      : [
          warning(
            'automatic',
            stalled,
            'add `unsigned` to `update.auto.allow`, or ask the maintainer to sign the feed',
          ),
        ]),
  ]
}

/** Each source of a feed that has several. */
export async function checkMirrors(subject: Subject, outside: Outside): Promise<Finding[]> {
  return (await newest(subject, outside))?.sources ?? []
}

function offered(setting: string, tag: string, bad: BadRelease | null): Finding {
  if (bad === null) return ok('feed', `${setting} has ${tag}`)
  const hint = 'an update skips this release unless you specify its tag'
  return warning('feed', `${setting} has ${tag}, which failed here on ${bad.at}: ${bad.reason}`, hint)
}

async function failureHere({ receipt }: Subject, { tag, asset }: Release): Promise<BadRelease | null> {
  if (receipt === null) return null
  return badEntry(await badOf(receipt), tag, asset.sha256)
}

export interface FeedOffer {
  /** the feed that was asked */
  setting: string
  /** null if the feed has none for this host, or on a fault */
  release: Release | null
  /** why a newer one than `release` cannot be used */
  problem: BatonError | null
  /** that the repository has another name now; else null */
  moved: string | null
  fault: unknown
  trust: TrustReport
  /** of its sources, if it has several */
  sources: Finding[]
}

const asked = new WeakMap<Subject, Promise<FeedOffer | null>>()

/** What the feed has for this host; asks it once for all checks of a subject. Null if no feed is named. */
export function newest(subject: Subject, outside: Outside): Promise<FeedOffer | null> {
  const answer = asked.get(subject) ?? ask(subject, outside)
  asked.set(subject, answer)
  return answer
}

async function ask({ layout, receipt, feed }: Subject, outside: Outside): Promise<FeedOffer | null> {
  const choice = receipt === null ? { feed: feed ?? '' } : await feedOf(receipt)
  const setting = feedName(choice)
  if (setting === '') return null
  let moved: string | null = null
  const onMoved = (line: string) => void (moved = line)
  const at = outside.feedAt(choice)
  await using open = openFeed(at, { service: layout.service, stateDirectory: null, onMoved })
  const { release, problem, fault } = await open
    .latest(() => false)
    .then(
      ({ release: found, problem: why }) =>
        found === null ? { release: null, problem: null, fault: why } : { release: found, problem: why, fault: null },
      (cause: unknown) => ({ release: null, problem: null, fault: cause }),
    )
  const opened = [at.feed].flat()
  const named = ({ name }: FeedSource) => [choice.feed].flat()[opened.indexOf(name)] ?? name
  const all = open.sources?.map((source) => ({ ...source, name: named(source) }))
  const sources = all === undefined ? [] : await judgeSources(all, release)
  return { setting, release, problem, fault, moved, trust: await open.trust(), sources }
}

/** `release`: the newest one, which the feed itself has named; null: it has not. */
async function judgeSources(sources: readonly FeedSource[], release: Release | null): Promise<Finding[]> {
  if (release === null) return [warning('mirror', 'no mirror was checked: the newest release is not known')]
  return await Promise.all(sources.map(async (source) => await judged(source, release)))
}

async function judged(source: FeedSource, { tag, asset }: Release): Promise<Finding> {
  const { name } = source
  const signal = AbortSignal.timeout(ASK_MS)
  let bytes = 0
  try {
    const { stream } = await source.bytes(asset, 0, null, signal)
    const hash = createHash('sha256')
    for await (const part of stream) {
      bytes += part.length
      if (bytes > asset.sizeBytes) break
      hash.update(part)
    }
    if (bytes === asset.sizeBytes && hash.digest('hex') === asset.sha256)
      return ok('mirror', `${name} has ${tag} exactly as published`)
    const hint = 'updates skip this source; tell the person who runs it, or remove it from `feed`'
    return warning('mirror', `${name} serves a \`${asset.name}\` for ${tag} that differs from the published file`, hint)
  } catch (cause) {
    const why =
      bytes > 0 && signal.aborted
        ? `only ${bytes} of ${asset.sizeBytes} bytes arrived in ${ASK_MS / 1000} s`
        : reasonOf(cause)
    return warning(
      'mirror',
      `${tag} is currently not available from ${name}: ${why}`,
      'until it is available again, updates are downloaded from another source',
    )
  }
}

/** Whether nobody but root can change this folder, or anything in it. */
async function isRootsAlone(folder: string): Promise<boolean> {
  const all = await readdir(folder, { recursive: true }).catch(() => null)
  if (all === null || all.length > FILES_MAX) return false
  for (const name of ['', ...all]) if (!(await trustIn(join(folder, name))).trusted) return false
  return true
}

async function trustFinding({ signed, warning: soon, metadata }: TrustReport, feed: string): Promise<Finding> {
  if (!signed) {
    // such as one that deploy-npm.sh fills: whoever could change it could change what runs here as well
    if (feed.startsWith('/') && (await isRootsAlone(feed)))
      return ok('trust', `not signed, but only root can write to ${feed}`)
    const hint = 'ask the maintainer to sign the feed (`baton trust`)'
    return warning('trust', 'not signed: anyone who can write to the feed decides what runs here', hint)
  }
  if (soon !== null)
    return warning('trust', soon.message, 'ask the maintainer to sign the feed again (`baton trust refresh`)')
  return ok('trust', formatSigned(metadata))
}

/** Pure. */
export function formatSigned(metadata: readonly { expiresAt: string }[]): string {
  const [first] = metadata.map(({ expiresAt }) => expiresAt).toSorted()
  return `signed, ${first === undefined ? 'expiry date unknown' : `valid until ${first}`}`
}

export async function checkClock({ receipt, feed }: Subject): Promise<Finding[]> {
  const [now, hint] = [Date.now(), 'set the clock: certificates cannot be checked when it is wrong']
  const ours = new Date(now).toISOString()
  const isBefore = receipt !== null && Date.parse(receipt.installedAt) > now + CLOCK_TOLERANCE_MS
  const setting = receipt === null ? feed : feedName(await feedOf(receipt))
  const page = setting?.startsWith('github:') === true ? 'https://api.github.com/' : setting
  const isAsked = !isBefore && page !== null && /^https?:/.test(page)
  const theirs = isAsked ? await dateOf(page, 10_000).catch(() => null) : null
  return wrongOf(
    [
      isBefore &&
        problem('clock', `the clock shows ${ours}, which is before the install at ${receipt.installedAt}`, hint),
      theirs !== null &&
        Math.abs(theirs.getTime() - now) > CLOCK_TOLERANCE_MS &&
        warning('clock', `the clock shows ${ours}, but the feed's clock shows ${theirs.toISOString()}`, hint),
    ],
    ok('clock', ours),
  )
}
