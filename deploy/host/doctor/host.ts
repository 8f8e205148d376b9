// Checks whether this host can have an install of this kind at all, and whether the unit as systemd has loaded it, drop-ins included,
// allows what an update has to do inside it.

import { dirname } from 'node:path'
import { ownCommand, type Receipt } from '../../../agent/install.ts'
import { isRoot } from '../place/identity.ts'
import type { Layout } from '../place/layout.ts'
import { hasSystemd, showUnit } from '../supervisor/systemd.ts'
import { problem, type Finding, ok, type Wrong, type Subject, warning, wrongOf } from './finding.ts'

export async function checkHost(): Promise<Finding[]> {
  const { platform, arch } = process
  if (platform === 'linux' || platform === 'darwin') return [ok('host', `${platform} ${arch}`)]
  const hint = 'see the guide *A binary that you start yourself*'
  return [problem('host', `expected Linux or macOS, got ${platform}`, hint, 'unsupported_host')]
}

export async function checkRights({ layout }: Pick<Subject, 'layout'>): Promise<Finding[]> {
  if (layout.scope !== 'system' || isRoot()) return []
  const hint = 'use sudo, or install for yourself with `--user`'
  return [problem('rights', 'a system-wide install requires root', hint)]
}

export async function checkSupervisor({
  layout: { scope },
  withUnit,
}: {
  layout: Pick<Layout, 'scope'>
  withUnit: boolean
}): Promise<Finding[]> {
  if (!withUnit) return [ok('supervisor', 'without systemd, as requested with `--no-service`')]
  if (await hasSystemd(scope)) return [ok('supervisor', scope === 'system' ? 'systemd' : 'systemd --user')]
  const what = scope === 'system' ? 'systemd' : 'a systemd manager for this user'
  const hint =
    scope === 'user'
      ? 'log in again (or run `loginctl enable-linger`), or install without systemd: `--no-service`'
      : 'install without systemd: `--no-service`'
  return [problem('supervisor', `this host has no ${what.replace(/^a /, '')}`, hint, 'unsupported_host')]
}

/** Asks systemd for the loaded unit, drop-ins included. */
export async function checkSandbox({ receipt, layout }: Subject): Promise<Finding[]> {
  if (receipt === null || receipt.supervisor === 'none') return []
  const names = [
    'LoadState',
    'Type',
    'NotifyAccess',
    'KillMode',
    'ProtectSystem',
    'ProtectHome',
    'ReadWritePaths',
    'ReadOnlyPaths',
    'InaccessiblePaths',
    'MemoryDenyWriteExecute',
    'NoExecPaths',
    'NeedDaemonReload',
    'StateDirectory',
  ]
  return judgeUnit(await showUnit(layout.scope, `${layout.service}.service`, names), receipt)
}

/** Pure: judges whether the properties from `systemctl show` allow what an update has to do inside the unit. */
export function judgeUnit(unit: Readonly<Record<string, string>>, receipt: Receipt): Finding[] {
  const { service } = receipt
  if (unit['LoadState'] !== 'loaded') {
    const message = `expected the unit ${service}.service to be loaded, but its LoadState is ${unit['LoadState'] ?? 'missing'}`
    return [problem('unit', message, `run \`${ownCommand('install')}\` again`, 'service_down')]
  }
  const drop = `find the setting with \`systemctl cat ${service}\` and correct it`
  const [type = '', access = '', kill = ''] = ['Type', 'NotifyAccess', 'KillMode'].map((name) => unit[name])
  const follows = type === 'notify' || type === 'notify-reload'
  return wrongOf(
    [
      ...judgePaths(unit, receipt, drop),
      unit['MemoryDenyWriteExecute'] === 'yes' &&
        problem('unit', 'MemoryDenyWriteExecute=yes breaks the JIT compiler, which crashes the service', drop),
      !follows && warning('unit', `Type=${type} does not let systemd track the new process after an update`, drop),
      follows &&
        access !== 'all' &&
        problem(
          'unit',
          `expected NotifyAccess=all, got ${access}: systemd would ignore notifications from the process that an update starts`,
          drop,
        ),
      kill !== 'mixed' &&
        warning(
          'unit',
          `expected KillMode=mixed, got ${kill}: stopping the service would not let the main process drain its connections`,
          drop,
        ),
      unit['NeedDaemonReload'] === 'yes' &&
        warning('unit', 'the unit on disk is newer than the loaded one', 'run `systemctl daemon-reload`'),
    ],
    ok('unit', `${service}.service lets the service replace its executable`),
  )
}

/** Whether the sandbox lets the service write and run its files. */
function judgePaths(unit: Readonly<Record<string, string>>, receipt: Receipt, drop: string): Wrong[] {
  const list = (name: string) => pathsIn(unit[name])
  const directory = dirname(receipt.executable)
  const state = list('StateDirectory').map((name) => `/var/lib/${name}`)
  const closed = [...closedBy(unit), ...list('ReadOnlyPaths'), ...list('InaccessiblePaths')]
  const shut = (what: string, path: string, open: readonly string[]): Wrong => {
    const message = `the unit forbids writing to ${path}, which holds ${what}`
    const hint = `${drop}; ReadWritePaths= must list the directory, not the file`
    return depth(closed, path) > depth(open, path) && problem('unit', message, hint)
  }
  return [
    shut('the executable', directory, list('ReadWritePaths')),
    shut('the state', receipt.stateDirectory, [...list('ReadWritePaths'), ...state]),
    depth(list('ReadWritePaths'), receipt.executable) > directory.length &&
      problem('unit', `ReadWritePaths= lists only the executable: other files in its directory stay read-only`, drop),
    depth(list('NoExecPaths'), directory) >= 0 &&
      problem('unit', `NoExecPaths= forbids running programs in ${directory}`, drop),
  ]
}

/** systemd.exec(5): the directories that ProtectSystem= and ProtectHome= make read-only or hide. */
function closedBy(unit: Readonly<Record<string, string>>): string[] {
  const system = { strict: ['/'], full: ['/usr', '/boot', '/efi', '/etc'], yes: ['/usr', '/boot', '/efi'] }
  const closed = Object.entries(system).find(([value]) => value === unit['ProtectSystem'])?.[1] ?? []
  return (unit['ProtectHome'] ?? 'no') === 'no' ? closed : [...closed, '/home', '/root', '/run/user']
}

/** Length of the deepest rule about a path, which wins; -1 if there is none. */
function depth(tops: readonly string[], path: string): number {
  const within = (top: string) => top === '/' || path === top || path.startsWith(`${top}/`)
  return Math.max(-1, ...tops.filter(within).map((top) => top.length))
}

function pathsIn(value: string | undefined): string[] {
  const words = (value ?? '').split(' ').filter(Boolean)
  return words.map((path) => path.replace(/^[-+]+/, ''))
}
