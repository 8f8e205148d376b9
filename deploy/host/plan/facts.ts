// Looks at the host before anything is changed: what a plan is made from. Reads only.

import { lstat, readdir, readFile, readlink, realpath, stat } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { isLeftover, placesOf, readReceipt, type Receipt, receiptPath } from '../../../agent/install.ts'
import { layoutOf, type Layout, type Person } from '../place/layout.ts'
import type { Choices, Environment, Scope } from '../place/choices.ts'
import { findId, isRoot, ownName } from '../place/identity.ts'
import { type Facts, foundAs, type Found } from './plan.ts'
import { run } from '../../lib/shell.ts'
import { type Supervisor, supervisorFor, systemctlFor } from '../supervisor/supervisor.ts'
import { rescueUnit, serviceUnit } from '../place/unit.ts'

export function personOf(environment: Environment): Person {
  return { name: ownName(), home: environment['HOME'] ?? homedir(), environment }
}

/**
 * The install that a command is about: the one this executable belongs to, else the one that the command's link leads to,
 * else the one in the place of contract 3. Null where there is none.
 */
export async function findReceipt(service: string, candidates: readonly string[]): Promise<Receipt | null> {
  for (const candidate of candidates) {
    const executable = await realpath(candidate).catch(() => candidate)
    const receipt = await readReceipt(executable)
    if (receipt !== null && receipt.service === service && receipt.executable === executable) return receipt
  }
  return null
}

/** Where to look, in order. `scope` null: as root the host's install, else one's own and then the host's. */
export function candidatesFor(
  service: string,
  scope: Scope | null,
  prefix: string | null,
  person: Person,
  own: string | null,
): string[] {
  const scopes: Scope[] = scope !== null ? [scope] : isRoot() ? ['system'] : ['user', 'system']
  const places = scopes.flatMap((one) => {
    const choices: Choices = {
      scope: one,
      prefix,
      'state-dir': null,
      feed: '',
      listen: '',
      'run-as': null,
      service: true,
      start: true,
    }
    const layout = layoutOf(service, choices, person)
    return prefix === null ? [layout.command, layout.executable] : [layout.executable]
  })
  return own === null || prefix !== null ? places : [own, ...places]
}

/** The layout that a receipt tells of, whatever today's flags and environment are. */
export function layoutOfReceipt(receipt: Receipt, person: Person): Layout {
  const { service, scope, executable, stateDirectory, configPath, user } = receipt
  const choices: Choices = {
    scope,
    prefix: executable.slice(0, -service.length - 1),
    'state-dir': stateDirectory,
    feed: receipt.feed,
    listen: '',
    'run-as': scope === 'system' ? user : null,
    service: receipt.supervisor !== 'none',
    start: true,
  }
  return { ...layoutOf(service, choices, person), configPath, configDirectory: join(configPath, '..'), user }
}

export async function gatherFacts(layout: Layout, withUnit: boolean): Promise<Facts> {
  const root = isRoot() && layout.scope === 'system'
  const identity = await findId(layout.user)
  const receipt = await readReceipt(layout.executable)
  const known = receipt !== null && receipt.service === layout.service && receipt.executable === layout.executable
  const ready = async (path: string) => {
    const found = await stat(path).catch(() => null)
    return found !== null && found.isDirectory() && (!root || found.uid === identity?.uid)
  }
  return {
    root,
    userExists: identity !== null,
    directoryReady: await ready(layout.directory),
    stateReady: await ready(layout.stateDirectory),
    configDirectoryExists: await exists(layout.configDirectory),
    configExists: await exists(layout.configPath),
    receipt,
    executable: (await exists(layout.executable)) ? (known ? 'installed' : 'foreign') : 'absent',
    command: await foundLink(layout),
    unit: foundAs(await textAt(layout.unit), serviceUnit(layout)),
    rescueUnit: foundAs(await textAt(layout.rescueUnit), rescueUnit(layout)),
    enabled: withUnit && (await isEnabled(layout)),
    active: receipt !== null && (await isActive(supervisorFor(receipt))),
    ours: await oursIn(layout),
    now: new Date(),
  }
}

export async function isActive(supervisor: Supervisor): Promise<boolean> {
  return (await supervisor.state()).active
}

/** Something at this path, a dangling link included. */
export async function exists(path: string): Promise<boolean> {
  return (await lstat(path).catch(() => null)) !== null
}

async function oursIn({ directory, service, executable }: Layout): Promise<string[]> {
  const { backup, partial, former, aside } = placesOf(executable)
  const entries = (await readdir(directory).catch(() => [])).filter(
    (name) => isLeftover(name) && name.includes(service),
  )
  const paths = [
    partial,
    former,
    aside,
    ...entries.map((name) => join(directory, name)),
    backup,
    executable,
    receiptPath(executable),
  ]
  const found = await Promise.all(paths.map(async (path) => ((await exists(path)) ? path : null)))
  return found.filter((path) => path !== null)
}

async function foundLink({ command, executable }: Layout): Promise<Found> {
  const target = await readlink(command).catch(() => null)
  if (target === null) return (await exists(command)) ? 'foreign' : 'absent'
  if (target === executable) return 'same'
  // a link that leads nowhere is what an uninstall by hand leaves behind
  return (await exists(target)) ? 'foreign' : 'ours'
}

async function isEnabled({ scope, service }: Layout): Promise<boolean> {
  const { stdout } = await run([...systemctlFor(scope), 'is-enabled', `${service}.service`], { allowFailure: true })
  return stdout.trim() === 'enabled'
}

async function textAt(path: string): Promise<string | null> {
  return await readFile(path, 'utf8').catch(() => null)
}
