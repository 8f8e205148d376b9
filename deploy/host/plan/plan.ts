// What a command is going to do, as data. `--dry-run` prints it, `carry.ts` carries it out: there is no other way to
// change a host, so the two cannot differ. Pure: facts in, steps out. No step holds a secret.

import type { Receipt } from '../../../agent/install.ts'
import { BatonError, compareTags } from '../../../agent/words.ts'
import { type Chosen, parseListen } from '../place/choices.ts'
import type { Layout } from '../place/layout.ts'
import { formatCommand } from '../../lib/shell.ts'
import { MARK, rescueUnit, serviceUnit } from '../place/unit.ts'

export type Step =
  | { do: 'create-user'; user: string; home: string }
  /** `owner` null: whoever runs the command */
  | { do: 'make-directory'; path: string; mode: number; owner: string | null; group: string | null }
  | { do: 'lock'; path: string }
  /** with a `dashboard.password` made at random while it is carried out */
  | { do: 'write-config'; path: string; owner: string | null; config: Record<string, unknown> }
  | { do: 'place-executable'; from: string; path: string; sha256: string; owner: string | null }
  | { do: 'write-receipt'; path: string; owner: string | null; receipt: Receipt }
  | { do: 'write-file'; path: string; content: string }
  | { do: 'link'; path: string; target: string }
  | { do: 'remove'; path: string }
  /** only where it is empty */
  | { do: 'remove-directory'; path: string }
  /** everything in it; only ever after the service's name was typed */
  | { do: 'purge'; path: string }
  | { do: 'remove-user'; user: string }
  | { do: 'run'; command: string[] }
  | { do: 'start'; service: string }
  | { do: 'stop'; service: string }
  | { do: 'update'; service: string; to: string | null }
  | { do: 'rollback'; service: string }
  | { do: 'wait-healthy'; service: string; tag: string }

/** What a person reads, one line a step. */
export function describe(step: Step): string {
  switch (step.do) {
    case 'create-user':
      return `create the system user ${step.user}`
    case 'make-directory':
      return `make the directory ${step.path} (${octal(step.mode)}${step.owner === null ? '' : `, ${step.owner}`})`
    case 'lock':
      return `take the lock in ${step.path}`
    case 'write-config':
      return `write ${step.path} (0600) with a random dashboard.password`
    case 'place-executable':
      return `put the executable at ${step.path} (sha256 ${step.sha256.slice(0, 12)}…)`
    case 'write-receipt':
      return `write the receipt ${step.path} (${step.receipt.tag})`
    case 'write-file':
      return `write ${step.path}`
    case 'link':
      return `link ${step.path} to ${step.target}`
    case 'remove':
      return `remove ${step.path}`
    case 'remove-directory':
      return `remove the directory ${step.path} if it is empty`
    case 'purge':
      return `remove ${step.path} and everything in it`
    case 'remove-user':
      return `remove the system user ${step.user}`
    case 'run':
      return `run ${formatCommand(step.command)}`
    case 'start':
      return `start ${step.service}`
    case 'stop':
      return `stop ${step.service}`
    case 'update':
      return `update ${step.service} to ${step.to ?? 'the latest release'}: check, download, verify, swap, restart`
    case 'rollback':
      return `roll ${step.service} back to its backup executable: swap, restart`
    case 'wait-healthy':
      return `wait until ${step.service} ${step.tag} answers`
    default:
      return step satisfies never
  }
}

/** What stands at a path that we are going to write. */
export type Found = 'absent' | 'same' | 'ours' | 'foreign'

/** What the host looks like before an install; gathered by `facts.ts`. */
export interface Facts {
  /** as root, owners are set; otherwise everything belongs to whoever runs the command */
  root: boolean
  userExists: boolean
  directoryReady: boolean
  stateReady: boolean
  configDirectoryExists: boolean
  configExists: boolean
  receipt: Receipt | null
  executable: 'absent' | 'installed' | 'foreign'
  command: Found
  unit: Found
  rescueUnit: Found
  enabled: boolean
  active: boolean
  /** our files in the directory of the executable, the receipt last: without it nothing here would be known as ours */
  ours: string[]
  now: Date
}

/** The executable that is to be installed: the one that runs this command. */
export interface Own {
  path: string
  tag: string
  sha256: string
}

export interface Request {
  layout: Layout
  chosen: Chosen
  facts: Facts
  own: Own
  /** the operator named a release; without it an install never goes back to an older one */
  explicit: boolean
}

/** The steps of an install or re-install; empty where there is nothing to do. Throws BatonError refused. */
export function planInstall(request: Request): Step[] {
  const { layout, chosen, facts, own } = request
  const { choices } = chosen
  refuseForeign(request)
  const fresh = facts.receipt === null
  const owner = facts.root ? layout.user : null
  const group = facts.root ? layout.user : null
  const steps: Step[] = []
  const system = layout.scope === 'system'
  const withUnit = choices.service

  if (facts.root && !facts.userExists) steps.push({ do: 'create-user', user: layout.user, home: layout.stateDirectory })
  if (!facts.directoryReady) steps.push({ do: 'make-directory', path: layout.directory, mode: 0o755, owner, group })
  if (!facts.stateReady) steps.push({ do: 'make-directory', path: layout.stateDirectory, mode: 0o750, owner, group })
  if (!facts.configDirectoryExists) {
    steps.push({
      do: 'make-directory',
      path: layout.configDirectory,
      mode: system ? 0o750 : 0o700,
      owner: facts.root ? 'root' : null,
      group,
    })
  }
  if (!facts.configExists) {
    const { host, port } = parseListen(choices.listen)
    // the feed stays in the receipt, where a later `install --feed` can change it: the configuration is the operator's
    const config = { listen: { host, port }, stateDirectory: layout.stateDirectory }
    steps.push({ do: 'write-config', path: layout.configPath, owner, config })
  }

  const step = executableStep(request)
  if (step?.do === 'place-executable') steps.push(step)
  const receipt = receiptFor(request)
  if (receipt !== null) steps.push({ do: 'write-receipt', path: `${layout.directory}/receipt.json`, owner, receipt })
  if (facts.command !== 'same') steps.push({ do: 'link', path: layout.command, target: layout.executable })

  const systemctl = system ? ['systemctl'] : ['systemctl', '--user']
  if (withUnit) {
    const units: [Found, string, string][] = [
      [facts.unit, layout.unit, serviceUnit(layout)],
      [facts.rescueUnit, layout.rescueUnit, rescueUnit(layout)],
    ]
    const changed = units.filter(([found]) => found !== 'same')
    for (const [, path, content] of changed) steps.push({ do: 'write-file', path, content })
    if (changed.length > 0) steps.push({ do: 'run', command: [...systemctl, 'daemon-reload'] })
    if (!facts.enabled) steps.push({ do: 'run', command: [...systemctl, 'enable', `${layout.service}.service`] })
  }
  const { service } = layout
  if (step?.do === 'update') steps.push(step)
  else if (choices.start && !facts.active) {
    const tag = fresh || step !== null ? own.tag : (facts.receipt?.tag ?? own.tag)
    steps.push({ do: 'start', service }, { do: 'wait-healthy', service, tag })
  }
  // the lock goes between the directories, which it needs, and everything that could collide
  const place = steps.findLastIndex((one) => one.do === 'make-directory' || one.do === 'create-user') + 1
  if (steps.length > 0 && step?.do !== 'update') steps.splice(place, 0, { do: 'lock', path: layout.stateDirectory })
  return steps
}

/** Stops and removes what the installer made. The state directory, the configuration, drop-ins and the environment file stay. */
export function planUninstall(
  layout: Layout,
  receipt: Receipt,
  facts: Pick<Facts, 'active' | 'enabled' | 'unit' | 'rescueUnit' | 'command' | 'ours'>,
  purge: boolean,
): Step[] {
  const { service } = layout
  const systemctl = layout.scope === 'system' ? ['systemctl'] : ['systemctl', '--user']
  const steps: Step[] = [{ do: 'lock', path: layout.stateDirectory }]
  if (facts.active) steps.push({ do: 'stop', service })
  if (facts.enabled) steps.push({ do: 'run', command: [...systemctl, 'disable', `${service}.service`] })
  if (isOurs(facts.unit)) steps.push({ do: 'remove', path: layout.unit })
  if (isOurs(facts.rescueUnit)) steps.push({ do: 'remove', path: layout.rescueUnit })
  if (isOurs(facts.unit) || isOurs(facts.rescueUnit))
    steps.push({ do: 'run', command: [...systemctl, 'daemon-reload'] })
  if (isOurs(facts.command)) steps.push({ do: 'remove', path: layout.command })
  for (const path of facts.ours) steps.push({ do: 'remove', path })
  steps.push({ do: 'remove-directory', path: layout.directory })
  if (purge) {
    steps.push({ do: 'purge', path: layout.stateDirectory }, { do: 'purge', path: layout.configDirectory })
    if (layout.scope === 'system' && receipt.options['created-user'] === true) {
      steps.push({ do: 'remove-user', user: receipt.user })
    }
  }
  return steps
}

export function planStart(layout: Layout, tag: string): Step[] {
  return [
    { do: 'start', service: layout.service },
    { do: 'wait-healthy', service: layout.service, tag },
  ]
}

/** Whether the text at one of our paths was written by us. */
export function foundAs(existing: string | null, wanted: string): Found {
  if (existing === null) return 'absent'
  if (existing === wanted) return 'same'
  return existing.startsWith(MARK) ? 'ours' : 'foreign'
}

function isOurs(found: Found): boolean {
  return found === 'same' || found === 'ours'
}

function executableStep({
  layout,
  facts,
  own,
  explicit,
}: Request): Extract<Step, { do: 'place-executable' | 'update' }> | null {
  const owner = facts.root ? layout.user : null
  const place: Step = { do: 'place-executable', from: own.path, path: layout.executable, sha256: own.sha256, owner }
  if (facts.receipt === null || facts.executable === 'absent') return place
  const installed = facts.receipt.tag
  if (installed === own.tag) return null
  if (!explicit && compareTags(own.tag, installed) < 0) return null
  return { do: 'update', service: layout.service, to: own.tag }
}

/** Null where the one on the disk says it already. What an update changes in it, the update writes itself. */
function receiptFor({ layout, chosen, facts, own }: Request): Receipt | null {
  const old = facts.receipt
  const options: Receipt['options'] = { ...old?.options, ...chosen.remembered }
  if (facts.root && !facts.userExists) options['created-user'] = true
  const supervisor = !chosen.choices.service ? 'none' : layout.scope === 'system' ? 'systemd' : 'systemd-user'
  const gone = old === null || facts.executable === 'absent'
  const receipt: Receipt = {
    format: 1,
    service: layout.service,
    executable: layout.executable,
    tag: gone ? own.tag : old.tag,
    sha256: gone ? own.sha256 : old.sha256,
    scope: layout.scope,
    supervisor,
    user: layout.user,
    stateDirectory: layout.stateDirectory,
    configPath: layout.configPath,
    feed: chosen.choices.feed,
    installedAt: old?.installedAt ?? facts.now.toISOString(),
    options,
  }
  return old !== null && JSON.stringify(sorted(old)) === JSON.stringify(sorted(receipt)) ? null : receipt
}

function refuseForeign({ layout, chosen, facts }: Request): void {
  const { service } = layout
  const refuse = (message: string, hint: string) => new BatonError('refused', message, { hint })
  const old = facts.receipt
  if (old !== null) {
    if (old.service !== service) {
      throw refuse(
        `expected an install of ${service} in ${layout.directory}, found one of ${old.service}`,
        'choose another place with `--prefix`',
      )
    }
    if (old.user !== layout.user) {
      throw refuse(
        `${service} in ${layout.directory} was installed for the user ${old.user}, not for ${layout.user}`,
        'choose another place with `--prefix`, or uninstall it as that user',
      )
    }
    if (old.stateDirectory !== layout.stateDirectory) {
      throw refuse(
        `the state directory of ${service} is ${old.stateDirectory}; an install does not move it to ${layout.stateDirectory}`,
        'stop the service, uninstall, move the directory and install again with `--state-dir`',
      )
    }
    if ((old.supervisor === 'none') === chosen.choices.service) {
      throw refuse(
        `${service} was installed ${old.supervisor === 'none' ? 'without' : 'with'} a systemd service`,
        'uninstall first, the state is kept, then install it the other way',
      )
    }
  } else if (facts.executable !== 'absent') {
    throw refuse(
      `expected nothing at ${layout.executable}, found a file that no receipt tells about`,
      'move it away, or choose another place with `--prefix`',
    )
  }
  const places: [Found, string][] = [
    [facts.command, layout.command],
    [chosen.choices.service ? facts.unit : 'absent', layout.unit],
    [chosen.choices.service ? facts.rescueUnit : 'absent', layout.rescueUnit],
  ]
  for (const [found, path] of places) {
    if (found === 'foreign')
      throw refuse(`expected nothing or our own file at ${path}, found another one`, 'move it away')
  }
}

function sorted(value: object): unknown {
  return JSON.parse(JSON.stringify(value), (_key, inner: unknown) =>
    typeof inner === 'object' && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  )
}

function octal(mode: number): string {
  return mode.toString(8).padStart(4, '0')
}
