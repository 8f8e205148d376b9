// Reads the rules: the operator's configuration sets the limits (`update.auto`), and `update/policy.json` in the state directory, which
// the panel writes, tightens them. Reads both anew each time: they may change while the service runs.
// Must hold: if either is not readable or not valid, the service installs nothing by itself; only the configuration names a program to
// run. Power cut: `policy.json` is the one of before or after.

import { readSmall } from '../../disk/disk.ts'
import { join } from 'node:path'
import type { ManagedInstall } from '../../disk/managed-install.ts'
import { updateDirectory } from '../../disk/places.ts'
import { BatonError, codeOf } from '../../words/errors.ts'
import type { PolicyFile } from '../../words/schedule.ts'
import { isObject, parsedJson, quoted } from '../../words/untrusted.ts'
import { operatorsUpdate } from '../operator.ts'
import { openings } from './hours.ts'
import { type Policy, readPolicy, tightened, USUAL } from './policy.ts'

export interface Rules {
  policy: Policy
  /** as they were written; empty if they are not valid */
  limits: PolicyFile
  own: PolicyFile
  /** what is wrong with either of them, one sentence each */
  faults: string[]
  /** the operator's program and its arguments; null: none */
  onOutcome: string[] | null
}

export type Ruled = Pick<ManagedInstall, 'receipt' | 'stateDirectory'>

const [OWN_MAX_BYTES, ARGUMENTS_MAX, ARGUMENT_MAX] = [16 * 1024, 32, 4096]

/** A Node may be built without `Temporal`, which tells when hours are open. */
const NO_CALENDAR = 'this build of Node has no `Temporal`, so releases are not installed automatically'

export async function rulesOf(install: Ruled): Promise<Rules> {
  if (typeof Temporal === 'undefined')
    return { policy: { ...USUAL, mode: 'off' }, limits: {}, own: {}, faults: [NO_CALENDAR], onOutcome: null }
  const zone = Temporal.Now.timeZoneId()
  const [update, written] = await Promise.all([operatorsUpdate(install), readOwn(install)])
  const limits = readPolicy(update === null ? null : (update['auto'] ?? {}), zone, true)
  const own = readPolicy(written, zone, false)
  const onOutcome = programFrom(update?.['onOutcome'])
  const said = (where: string, all: string[]) =>
    all.slice(0, 3).map((fault) => `${where}: ${fault}, so nothing is installed automatically`)
  return {
    policy: tightened(limits.policy, own.policy),
    limits: limits.file,
    own: own.file,
    faults: [
      ...said('`update.auto` in the configuration', limits.faults),
      ...said('`update/policy.json`', own.faults),
      ...(typeof onOutcome === 'string' ? [onOutcome] : []),
    ],
    onOutcome: typeof onOutcome === 'string' ? null : onOutcome,
  }
}

/** Writes what the panel wants. Throws invalid_request with every fault; then nothing has changed. */
export async function writeOwn(install: Ruled & Pick<ManagedInstall, 'disk'>, value: unknown): Promise<void> {
  if (typeof Temporal === 'undefined') throw new BatonError('refused', NO_CALENDAR)
  const { policy, file, faults } = readPolicy(value, Temporal.Now.timeZoneId(), false)
  if (faults.length > 0) throw new BatonError('invalid_request', faults.join('; '))
  const { limits, own } = await rulesOf(install)
  // one that has passed since it was written may stay
  if (policy.pauseUntil !== null && policy.pauseUntil <= Date.now() && file.pauseUntil !== own.pauseUntil)
    throw new BatonError('invalid_request', `expected a future time in \`pauseUntil\`, got ${quoted(file.pauseUntil)}`)
  const operators = readPolicy(limits, Temporal.Now.timeZoneId(), true).policy
  const [opening] = openings(tightened(operators, policy).hours, Date.now())
  if (opening === undefined) {
    throw new BatonError('invalid_request', "`hours`: expected hours that overlap with the operator's", {
      hint: 'the limits are in `update.auto` of the configuration; `GET /admin/update/policy` shows them',
    })
  }
  await install.disk.makeDirectory(updateDirectory(install.stateDirectory), 0o700)
  await install.disk.writeWhole(ownPath(install), `${JSON.stringify(file, null, 2)}\n`, 0o600)
}

async function readOwn(install: Ruled): Promise<unknown> {
  try {
    const text = await readSmall(ownPath(install), OWN_MAX_BYTES)
    return text === null ? null : parsedJson(text)
  } catch (cause) {
    return codeOf(cause) === 'ENOENT' ? {} : null
  }
}

/** Null: none is named; a text: what is wrong with it. */
function programFrom(value: unknown): string[] | string | null {
  if (value === undefined || value === null) return null
  const isWord = (one: unknown): one is string =>
    typeof one === 'string' && one.length > 0 && one.length <= ARGUMENT_MAX && !one.includes('\0')
  if (Array.isArray(value) && value.length > 0 && value.length <= ARGUMENTS_MAX && value.every(isWord)) {
    if (value[0]?.startsWith('/') === true) return value
  }
  const got = isObject(value) ? 'an object' : quoted(value)
  return `\`update.onOutcome\` in the configuration: expected ["/path/of/a/program", "argument", …], got ${got}: no report is sent`
}

function ownPath({ stateDirectory }: Ruled): string {
  return join(updateDirectory(stateDirectory), 'policy.json')
}
