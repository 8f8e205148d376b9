// Finds out why the offered release waits for a person, before an attempt. Reads files; changes nothing.

import type { JournalState } from '../../disk/journal.ts'
import type { ManagedInstall } from '../../disk/managed-install.ts'
import { assertRoom, needsBeside } from '../../disk/room.ts'
import { exists } from '../../disk/disk.ts'
import { reasonOf } from '../../words/errors.ts'
import { ownRelease } from '../../own.ts'
import { expectedPause, lastPause, pauseFault } from '../../words/pause.ts'
import type { Rehearsal } from '../../words/rehearsal.ts'
import type { TrustReport } from '../../words/state.ts'
import type { NextSwitch } from '../../words/order.ts'
import { isObject } from '../../words/untrusted.ts'
import { forPerson, type Wait } from '../../words/waits.ts'
import { operatorsUpdate } from '../operator.ts'
import { cageOf } from '../rehearsal/ask-cage.ts'
import { LEFT } from './ask.ts'
import { leftIn } from './facts.ts'
import { type Alone, whyNotAlone } from './proven.ts'
import type { Remembered } from './memory.ts'
import type { Offered } from './next.ts'
import type { Policy } from './policy.ts'

export type PersonAsked = Pick<
  ManagedInstall,
  'service' | 'current' | 'places' | 'stateDirectory' | 'database' | 'receipt'
>

export interface PersonAskedWith {
  policy: Policy
  memory: Remembered
  journal: JournalState
  trust: Pick<TrustReport, 'signed'>
  next: Omit<NextSwitch, 'expectedMs'>
}

/** Null: nothing is known yet that needs a person. */
export async function asksOf(install: PersonAsked, known: PersonAskedWith): Promise<Wait | null> {
  const { policy, memory, journal, trust, next } = known
  const { offer } = memory
  if (offer === null) return null
  const { tag, sha256 } = offer
  if (policy.mode === 'notify') return { code: 'available', says: `${tag} is available`, tag }
  if (!trust.signed && !policy.allow.includes('unsigned')) return forPerson('unsigned', tag, 'the feed is not signed')
  if (leftIn(journal.history).includes(tag)) return forPerson('went_back', tag, LEFT)
  const never = memory.never.find((one) => one.sha256 === sha256 && (one.from ?? install.current) === install.current)
  if (never !== undefined) return never.why
  const tried = triedOf(install, journal, offer)
  const data = await aboutData(install, policy, tried, offer)
  if (data !== null) return data
  const expected = expectedPause(lastPause(journal.history), tried)
  const pause = next.order === 'stop-first' ? pauseFault(expected, next.maxPauseMs) : null
  if (pause !== null) return forPerson('pause', tag, pause.message, { why: pause.message })
  return await aboutRoom(install, offer)
}

/** The arguments of `whyNotAlone` for this process's own release. */
export function aloneUnder(allow: Policy['allow']): Alone {
  return { allow, isStateless: ownRelease().state === 'none' }
}

/** The last trial of the offered release beside the one that runs; null: there was none. Does not look at the data. */
function triedOf({ current }: PersonAsked, { tried = [] }: JournalState, { sha256 }: Offered): Rehearsal | null {
  return tried.find((one) => one.sha256 === sha256 && one.from === current)?.trial ?? null
}

async function aboutData(
  install: PersonAsked,
  { allow }: Pick<Policy, 'allow'>,
  tried: Rehearsal | null,
  { tag }: Offered,
): Promise<Wait | null> {
  const { service, current, database, receipt, stateDirectory } = install
  const alone = aloneUnder(allow)
  if (tried !== null) return whyNotAlone(alone, current, tag, tried)
  const update = await operatorsUpdate(install)
  const isThere = database === null ? isObject(update?.['scratch']) : await exists(database)
  if (!isThere) return whyNotAlone(alone, current, tag, undefined)
  const cage = await cageOf(service, receipt?.supervisor ?? 'none', stateDirectory)
  const isNever = update?.['trial'] === 'never'
  const reason = isNever ? '`trial` is `never`' : typeof cage === 'string' ? null : cage.reason
  return reason === null ? null : whyNotAlone(alone, current, tag, { verdict: 'untried', reason })
}

async function aboutRoom(install: PersonAsked, offer: Offered): Promise<Wait | null> {
  const { directory } = install.places
  try {
    const own = { directory, bytes: offer.bytes, what: 'the executable', isLittle: false }
    await assertRoom([own, ...(await needsBeside(install))])
    return null
  } catch (cause) {
    const why = reasonOf(cause)
    return forPerson('room', offer.tag, why, { why })
  }
}
