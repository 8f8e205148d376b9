// Checks that the unit as systemd has loaded it, drop-ins included, allows what an update has to do inside it.

import { dirname } from 'node:path'
import { ownCommand, type Receipt } from '../../../agent/install.ts'
import { showUnit } from '../supervisor/systemd.ts'
import { failure, type Finding, ok, type Subject, warning } from './finding.ts'

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
  if (unit['LoadState'] !== 'loaded') {
    const message = `expected the unit ${receipt.service}.service, it is ${unit['LoadState'] ?? 'not there'}`
    return [failure('unit', message, `\`${ownCommand('install')}\` again`, 'service_down')]
  }
  const findings = [...judgePaths(unit, receipt), ...judgeProcess(unit, receipt)]
  if (unit['NeedDaemonReload'] === 'yes')
    findings.push(warning('unit', 'the unit on the disk is newer than the loaded one', 'systemctl daemon-reload'))
  return findings.length > 0
    ? findings
    : [ok('unit', `${receipt.service}.service lets the service replace its executable`)]
}

/** Whether the sandbox lets the service write and run its files. */
function judgePaths(unit: Readonly<Record<string, string>>, receipt: Receipt): Finding[] {
  const drop = whereToLook(receipt)
  const findings: Finding[] = []
  const list = (name: string) => pathsIn(unit[name])
  const directory = dirname(receipt.executable)
  const state = list('StateDirectory').map((name) => `/var/lib/${name}`)
  const closed = [...closedBy(unit), ...list('ReadOnlyPaths'), ...list('InaccessiblePaths')]
  for (const [what, path, open] of [
    ['the executable', directory, list('ReadWritePaths')],
    ['the state', receipt.stateDirectory, [...list('ReadWritePaths'), ...state]],
  ] as const) {
    if (depth(closed, path) <= depth(open, path)) continue
    const message = `the sandbox of the unit forbids writing in ${path}, where ${what} is`
    findings.push(failure('unit', message, `${drop}; ReadWritePaths= must name the directory, not the file`))
  }
  if (depth(list('ReadWritePaths'), receipt.executable) > directory.length) {
    findings.push(failure('unit', `ReadWritePaths= names the executable itself: its neighbours stay read-only`, drop))
  }
  if (depth(list('NoExecPaths'), directory) >= 0)
    findings.push(failure('unit', `NoExecPaths= forbids running what is in ${directory}`, drop))
  return findings
}

/** Whether systemd follows a handover, and lets a process drain. */
function judgeProcess(unit: Readonly<Record<string, string>>, receipt: Receipt): Finding[] {
  const drop = whereToLook(receipt)
  const findings: Finding[] = []
  const [type = '', access = '', kill = ''] = ['Type', 'NotifyAccess', 'KillMode'].map((name) => unit[name])
  if (unit['MemoryDenyWriteExecute'] === 'yes')
    findings.push(failure('unit', 'MemoryDenyWriteExecute=yes kills a JIT compiler, and so the service', drop))
  if (type !== 'notify' && type !== 'notify-reload')
    findings.push(warning('unit', `Type=${type} does not follow a handover to another process`, drop))
  else if (access !== 'all')
    findings.push(failure('unit', `NotifyAccess=${access} does not hear the successor; expected all`, drop))
  if (kill !== 'mixed')
    findings.push(warning('unit', `KillMode=${kill}: expected mixed, so that a stop lets the main process drain`, drop))
  return findings
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

function whereToLook({ service }: Receipt): string {
  return `look for it in \`systemctl cat ${service}\``
}
