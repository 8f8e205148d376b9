// What every command shares: its flags, how it finds its install, and how it asks the operator.

import { closeSync, openSync, readSync, writeSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { type Receipt, SYSTEM_DIRECTORY } from '../../../agent/install.ts'
import { type Allowed, DAY_MS, BatonError } from '../../../agent/words.ts'
import { runInPlace } from '../../lib/shell.ts'
import { type OpenSide, openSide } from '../boundary/open.ts'
import { type Choices, type Environment, fromEnvironment, type Said, type Scope } from '../place/choices.ts'
import { ownName } from '../../lib/own-name.ts'
import { isRoot } from '../place/identity.ts'
import { type Layout, layoutOf, layoutOfReceipt, type Person } from '../place/layout.ts'
import { isFromSource, ownFile } from '../place/own.ts'
import { serviceUnit } from '../place/unit.ts'
import { receiptOf } from '../plan/facts.ts'
import type { Step } from '../plan/step.ts'
import type { HostReport } from '../report.ts'

export interface HostFlags extends Allowed {
  said: Said
  release: string | null
  rehearse: boolean
  dryRun: boolean
  yes: boolean
  /** what a release asks of its unit is allowed, without a question */
  acceptUnit: boolean
  /** the service's name, which answers the question of `uninstall --purge` */
  confirm: string | null
  purge: boolean
  healthUrl: string | null
  lockTimeoutMs: number
  healthTimeoutMs: number
}

export interface Context {
  service: string
  /** tag of the executable that runs this */
  tag: string
  flags: HostFlags
  environment: Environment
  report: HostReport
}

/** An install that exists. */
export interface Located {
  receipt: Receipt
  layout: Layout
}

/** Finds the install that the command is about. Throws BatonError refused if there is none. */
export async function locate(context: Context): Promise<Located> {
  const found = await findMine(context)
  if (found !== null) return found
  const none = isRoot() ? `${context.service} has not been installed by root` : `${context.service} is not installed`
  throw new BatonError('refused', `${none} on this host`, {
    hint: 'run `install.sh`: it installs the service, or takes over an earlier install',
  })
}

/** As `find`; if root has no install of the whole host, and none is named, the user's install that this program belongs to. */
export async function findMine(context: Context): Promise<Located | null> {
  const found = await find(context)
  const { service, flags, environment } = context
  const scope = flags.said.scope ?? fromEnvironment(service, environment).said.scope ?? null
  if (found !== null || !isRoot() || scope !== null || ownDirectory(service) === null) return found
  return await find({ ...context, flags: { ...flags, said: { ...flags.said, scope: 'user' } } })
}

/** The install that the flags name. Without such flags root gets root's; a user gets their own, else the host's. */
export async function find(context: Context): Promise<Located | null> {
  const { service, flags, environment } = context
  const { said } = fromEnvironment(service, environment)
  const scope = flags.said.scope ?? said.scope ?? null
  const prefix = flags.said.prefix ?? said.prefix ?? null
  const scopes: Scope[] = scope !== null ? [scope] : isRoot() ? ['system'] : ['user', 'system']
  const person = personOf(environment)
  const places: [Scope, string | null][] = scopes.map((one) => [one, prefix])
  const own = prefix === null && scopes.includes('user') ? ownDirectory(service) : null
  if (own !== null) places.unshift(['user', own])
  for (const [one, folder] of places) {
    const choices: Choices = { ...defaultsFrom(environment), scope: one, prefix: folder }
    const receipt = await receiptOf(layoutOf(service, choices, person))
    if (receipt === null) continue
    const layout = layoutOfReceipt(receipt, person)
    if (prefix === null || layout.directory === prefix) return { receipt, layout }
  }
  return null
}

/** Directory of this program, if it may be a user's install: an executable with the service's name, or its backup. Else null. */
function ownDirectory(service: string): string | null {
  const directory = dirname(ownFile())
  const name = basename(ownFile()).replace(/\.backup$/, '')
  return !isFromSource() && name === service && directory !== join(SYSTEM_DIRECTORY, service) ? directory : null
}

/**
 * Opens `Side` for an install; dispose it at the end. `moves`: the command may have to download a release, or to wait for a migration or
 * a stop.
 */
export async function sideOf(context: Context, { receipt, layout }: Located, moves = false): Promise<OpenSide> {
  const owner = ownerOf(layout, receipt.feed, receipt.supervisor !== 'none')
  return await openSide(owner, context.report, context.environment, deadlineOf(context, moves))
}

export function ownerOf(layout: Layout, feed: string, withUnit: boolean) {
  const { service, scope, user, environmentFile, directory, stateDirectory } = layout
  const unit = serviceUnit(layout)
  return { service, scope, user, feed, withUnit, environmentFile, unit, places: [directory, stateDirectory] }
}

const LOOK_MS = 600_000
const MOVE_MS = DAY_MS

/** How long a command's worker may live, in milliseconds: the waits that the operator allows, plus time for the work itself. */
export function deadlineOf({ flags }: Context, moves: boolean): number {
  return flags.lockTimeoutMs + 2 * flags.healthTimeoutMs + (moves ? MOVE_MS : LOOK_MS)
}

export function personOf(environment: Environment): Person {
  return { name: ownName(), home: environment['HOME'] ?? '', environment }
}

export function defaultsFrom(environment: Environment): Choices {
  return {
    scope: isRoot() ? 'system' : 'user',
    prefix: null,
    'state-dir': null,
    feed: environment['BATON_DEFAULT_FEED'] ?? '',
    listen: '127.0.0.1:8080',
    'run-as': null,
    service: true,
    start: true,
  }
}

export function assertRights({ scope }: Layout): void {
  if (scope !== 'system' || isRoot()) return
  throw new BatonError('refused', 'a system-wide install requires root', { hint: 'use sudo' })
}

/** Asks the operator whether to go on, unless `-y` is given. Throws refused if they do not confirm, or without a terminal. */
export function confirm({ flags, report }: Context, title: string, steps: readonly Step[], command: string): void {
  const asked = steps.flatMap((step) => (step.do === 'allow' ? [step.asks] : []))
  if (flags.yes && (asked.length === 0 || flags.acceptUnit)) return
  if (flags.yes) {
    throw new BatonError('refused', `this service requests ${asked.join(', ')}; \`-y\` alone does not grant this`, {
      hint: 'add `--accept-unit`',
    })
  }
  report.note(title)
  report.plan(steps)
  const answer = askTerminal('Continue? [y/N] ')
  if (answer === null)
    throw new BatonError('refused', 'confirmation required, but there is no terminal to prompt on', {
      hint: `to skip this question, use \`${command} -y\``,
    })
  if (!/^y(es)?$/i.test(answer)) throw new BatonError('refused', 'not confirmed; nothing was changed')
}

/** `-y` does not answer for this: who gives it is not asked, and has to type the name beside it. */
export function confirmPurge({ service, flags }: Context): void {
  const ask = () => askTerminal(`This removes all data belonging to ${service}. Type the service name to continue: `)
  const typed = flags.confirm ?? (flags.yes ? null : ask())
  if (typed === service) return
  const why =
    typed !== null
      ? `the typed name is not \`${service}\`, so nothing was changed`
      : flags.yes
        ? `--purge removes all data belonging to ${service}; -y alone is not enough to confirm this`
        : 'confirmation required, but there is no terminal to prompt on'
  throw new BatonError('refused', why, { hint: `add \`--confirm ${service}\`` })
}

/** A clone has no executable to install. So install.sh gets one and runs its `install`; without another feed it builds this clone. */
export async function handToScript(context: Context, argv: readonly string[]): Promise<number> {
  const { service, flags, environment } = context
  const clone = join(import.meta.dirname, '../../..')
  const named =
    flags.said.feed ?? fromEnvironment(service, environment).said.feed ?? (await find(context))?.receipt.feed
  const from = named === undefined || named === join(clone, 'dist') ? ['--clone', clone] : []
  return await runInPlace(['/bin/sh', join(clone, 'install.sh'), 'install', ...argv, ...from])
}

/** Asks at /dev/tty: under `curl … | sh` stdin is the script. Null without a terminal. */
function askTerminal(question: string): string | null {
  let fd: number
  try {
    fd = openSync('/dev/tty', 'r+')
  } catch {
    return null
  }
  try {
    writeSync(fd, question)
    const bytes = Buffer.alloc(256)
    return bytes.subarray(0, readSync(fd, bytes)).toString().trim()
  } catch {
    return null
  } finally {
    closeSync(fd)
  }
}
