// The steps of an install or a re-install. Pure: facts in, steps out; empty if there is nothing to do.

import { type Receipt, rehearsalFolder } from '../../../agent/install.ts'
import { compareTags, linesOf } from '../../../agent/words.ts'
import { systemctlFor } from '../../lib/systemctl.ts'
import { ACCEPTED, acceptedIn, type Layout } from '../place/layout.ts'
import { parseListen } from '../place/choices.ts'
import { cagePathUnit, cageUnit } from '../place/cage.ts'
import { LOW_PORT_CAPABILITY, rescueUnit, serviceUnit } from '../place/unit.ts'
import type { Found, InstallRequest } from './found.ts'
import { refuseForeign } from './refuse.ts'
import type { Step } from './step.ts'

/** Throws BatonError refused. */
export function planInstall(request: InstallRequest): Step[] {
  refuseForeign(request)
  const executable = executableStep(request)
  const steps = [
    ...placeSteps(request),
    ...(executable?.do === 'place-executable' ? [executable] : []),
    ...commandSteps(request),
    ...unitSteps(request),
    ...runSteps(request, executable),
  ]
  // take the lock after making the directories, which it needs, and before everything that could collide
  const place = steps.findLastIndex(({ do: what }) => what === 'make-directory' || what === 'create-user') + 1
  if (steps.length > 0 && executable?.do !== 'update')
    steps.splice(place, 0, { do: 'lock', path: request.layout.stateDirectory })
  return steps
}

/** The user, the directories and the configuration. */
function placeSteps({ layout, chosen, facts, own }: InstallRequest): Step[] {
  const owner = facts.root ? layout.user : null
  const steps: Step[] = []
  const directory = (path: string, mode: number, of: string | null) =>
    void steps.push({ do: 'make-directory', path, mode, owner: of, group: owner })
  const { service, user, stateDirectory } = layout
  if (facts.root && !facts.userExists) steps.push({ do: 'create-user', user, service, home: stateDirectory })
  if (!facts.directoryReady) directory(layout.directory, 0o755, owner)
  if (!facts.stateReady) directory(layout.stateDirectory, 0o750, owner)
  if (!facts.cageReady) directory(rehearsalFolder(layout.stateDirectory), 0o700, owner)
  if (!facts.configDirectoryExists)
    directory(layout.configDirectory, layout.scope === 'system' ? 0o750 : 0o700, facts.root ? 'root' : null)
  if (!facts.configExists) {
    const { host, port } = parseListen(chosen.choices.listen)
    // write the feed only into the receipt, so that a later `install --feed` can change it: the configuration is the operator's
    const path = own.basePath === '' ? {} : { basePath: own.basePath }
    const config = { listen: { host, port }, stateDirectory: layout.stateDirectory, ...path }
    steps.push({ do: 'write-config', path: layout.configPath, owner, config })
  }
  return steps
}

/** The receipt, and what the command runs. */
function commandSteps(request: InstallRequest): Step[] {
  const { layout, facts, own, explicit } = request
  const steps: Step[] = []
  const renews = explicit || facts.programTag === null || compareTags(own.tag, facts.programTag) >= 0
  if (layout.program !== layout.executable && facts.program !== 'same' && renews)
    steps.push({ do: 'place-program', from: own.path, path: layout.program, tag: own.tag, sha256: own.sha256 })
  const receipt = receiptFor(request)
  if (receipt !== null) steps.push({ do: 'write-receipt', path: layout.receipt, receipt })
  // an earlier installer's receipt beside the executable no longer counts
  for (const path of facts.receipt === null ? facts.earlier : []) steps.push({ do: 'remove', path, of: 'service' })
  if (facts.command !== 'same') steps.push({ do: 'link', path: layout.command, target: layout.program })
  return steps
}

function unitSteps({ layout, chosen, facts }: InstallRequest): Step[] {
  if (!chosen.choices.service) return []
  const systemctl = systemctlFor(layout.scope)
  const units: [Found, string, string][] = [
    [facts.unit, layout.unit, serviceUnit(layout)],
    [facts.rescueUnit, layout.rescueUnit, rescueUnit(layout)],
    [facts.cageUnit, layout.cageUnit, cageUnit(layout, facts.systemdVersion)],
    [facts.cagePathUnit, layout.cagePathUnit, cagePathUnit(layout)],
  ]
  const changed = units.filter(([found]) => found !== 'same')
  const allowed = layout.asks === null || isAccepted(layout, facts.receipt) ? [] : linesOf(layout.asks, layout.service)
  const low =
    layout.lowPort === null
      ? {}
      : { [layout.unit]: `gives the service ${LOW_PORT_CAPABILITY}, for port ${layout.lowPort}` }
  const does: Record<string, string> = {
    ...low,
    [layout.rescueUnit]: 'restores the backup if the service cannot start',
    [layout.cageUnit]: 'tries a release on a copy of the data',
    [layout.cagePathUnit]: 'starts that trial',
  }
  const files = changed.map(([, path, content]) => {
    const what = does[path]
    return { do: 'write-file' as const, path, content, ...(what === undefined ? {} : { does: what }) }
  })
  const steps: Step[] = [...allowed.map((asks) => ({ do: 'allow' as const, asks })), ...files]
  if (changed.length > 0) steps.push({ do: 'run', command: [...systemctl, 'daemon-reload'] })
  if (!facts.enabled) steps.push({ do: 'run', command: [...systemctl, 'enable', `${layout.service}.service`] })
  if (!facts.cageEnabled)
    steps.push({ do: 'run', command: [...systemctl, 'enable', '--now', `${layout.service}-trial.path`] })
  return steps
}

/** Whether the operator has confirmed the same before. */
function isAccepted({ asks }: Layout, receipt: Receipt | null): boolean {
  return receipt !== null && JSON.stringify(asks) === JSON.stringify(acceptedIn(receipt))
}

function runSteps({ layout, chosen, facts, own }: InstallRequest, executable: Step | null): Step[] {
  const { service } = layout
  if (executable?.do === 'update') return [executable]
  if (!chosen.choices.start || facts.active) return []
  const tag = executable === null ? (facts.installed ?? own.tag) : own.tag
  return [
    { do: 'start', service },
    { do: 'wait-healthy', service, tag },
  ]
}

function executableStep({
  layout,
  facts,
  own,
  explicit,
}: InstallRequest): Extract<Step, { do: 'place-executable' | 'update' }> | null {
  const { executable: path, stateDirectory, service } = layout
  const { installed } = facts
  if (facts.executable === 'absent' || installed === null)
    return { do: 'place-executable', path, stateDirectory, tag: own.tag, sha256: own.sha256 }
  if (installed === own.tag) return null
  if (!explicit && compareTags(own.tag, installed) < 0) return null
  return { do: 'update', service, to: own.tag, from: installed }
}

/** Null if the receipt on the disk says the same already. */
function receiptFor({ layout, chosen, facts }: InstallRequest): Receipt | null {
  const old = facts.receipt
  const options: Receipt['options'] = { ...old?.options, ...chosen.remembered }
  if (facts.root && facts.userIsOurs) options['created-user'] = true
  if (layout.asks === null) delete options[ACCEPTED]
  else options[ACCEPTED] = JSON.stringify(layout.asks)
  const supervisor = !chosen.choices.service ? 'none' : layout.scope === 'system' ? 'systemd' : 'systemd-user'
  const receipt: Receipt = {
    format: 1,
    service: layout.service,
    executable: layout.executable,
    scope: layout.scope,
    supervisor,
    user: layout.user,
    stateDirectory: layout.stateDirectory,
    configPath: layout.configPath,
    feed: chosen.choices.feed,
    ...(layout.node === null ? {} : { node: layout.node }),
    installedAt: old?.installedAt ?? facts.now.toISOString(),
    options,
  }
  return old !== null && JSON.stringify(sorted(old)) === JSON.stringify(sorted(receipt)) ? null : receipt
}

function sorted(value: object): unknown {
  return JSON.parse(JSON.stringify(value), (_key, inner: unknown) =>
    typeof inner === 'object' && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  )
}
