// Says before anything is downloaded what would fail. An install runs the checks about the place first and stops at the
// first failure; `doctor` runs them all. Reads only.

import { access, constants, lstat, readFile, stat, statfs } from 'node:fs/promises'
import { createServer } from 'node:net'
import { dirname, join } from 'node:path'
import { installedTag, openFeed, type Receipt } from '../../../agent/install.ts'
import { BatonError, type ErrorCode, reasonOf, type Release } from '../../../agent/words.ts'
import { readAccess } from '../service/client.ts'
import { dateOf } from '../../lib/http.ts'
import { asUser, findId, isRoot } from '../place/identity.ts'
import type { Layout } from '../place/layout.ts'
import { feedOf } from '../service/operate.ts'
import { formatBytes } from '../../lib/progress.ts'
import { run } from '../../lib/shell.ts'
import { hasSystemd, parseShow, supervisorFor, systemctlFor } from '../supervisor/supervisor.ts'

export type Level = 'ok' | 'warning' | 'failure'

export interface Finding {
  check: string
  level: Level
  message: string
  hint: string | null
  /** gives a failure its exit code */
  code: ErrorCode
}

export interface Patient {
  layout: Layout
  /** null before a first install */
  receipt: Receipt | null
  /** null: none was named yet */
  feed: string | null
  /** bytes of the executable that is going to be put in place */
  executableBytes: number
  withUnit: boolean
}

type Check = (patient: Patient) => Promise<Finding[]>

/** Room for a compressed asset beside what it unpacks to. */
const ASSET_SHARE = 0.5
const CLOCK_TOLERANCE_MS = 5 * 60_000

/** What an install needs of the place. */
export const PLACE_CHECKS: readonly Check[] = [
  checkHost,
  checkRights,
  checkSupervisor,
  checkDirectories,
  checkMounts,
  checkSpace,
]
/** What else an update needs. */
export const ALL_CHECKS: readonly Check[] = [
  ...PLACE_CHECKS,
  checkExecutable,
  checkConfiguration,
  checkSandbox,
  checkDatabase,
  checkFeed,
  checkClock,
]

export async function examine(patient: Patient, checks: readonly Check[] = ALL_CHECKS): Promise<Finding[]> {
  const findings: Finding[] = []
  for (const check of checks) {
    try {
      findings.push(...(await check(patient)))
    } catch (cause) {
      findings.push(failure(check.name.replace(/^check/, '').toLowerCase(), reasonOf(cause)))
    }
  }
  return findings
}

/** The first failure as an error, or null. */
export function worstOf(findings: readonly Finding[]): BatonError | null {
  const worst = findings.find(({ level }) => level === 'failure')
  if (worst === undefined) return null
  return new BatonError(worst.code, worst.message, worst.hint === null ? {} : { hint: worst.hint })
}

async function checkHost(): Promise<Finding[]> {
  const { platform, arch } = process
  if (platform !== 'linux' && platform !== 'darwin') {
    return [
      failure(
        'host',
        `expected Linux or macOS, got ${platform}`,
        'see the guide for a manually started binary',
        'unsupported_host',
      ),
    ]
  }
  return [ok('host', `${platform} ${arch}`)]
}

async function checkRights({ layout }: Patient): Promise<Finding[]> {
  if (layout.scope === 'system' && !isRoot()) {
    return [
      failure(
        'rights',
        'expected to run as root for an install for the whole host',
        'use sudo, or install for yourself with `--user`',
        'refused',
      ),
    ]
  }
  return []
}

async function checkSupervisor({ layout, withUnit }: Patient): Promise<Finding[]> {
  if (!withUnit) return [ok('supervisor', 'a detached process, as asked for with `--no-service`')]
  if (await hasSystemd(layout.scope))
    return [ok('supervisor', layout.scope === 'system' ? 'systemd' : 'systemd --user')]
  const what = layout.scope === 'system' ? 'systemd' : 'a systemd manager of this user'
  const hint =
    layout.scope === 'user'
      ? 'log in anew (or `loginctl enable-linger`), or run it without one: `--no-service`'
      : 'run it without one: `--no-service`'
  return [failure('supervisor', `expected ${what} on this host, found none`, hint, 'unsupported_host')]
}

/** Everything that a user of the service must be able to rename in, seen with that user's eyes. */
async function checkDirectories({ layout }: Patient): Promise<Finding[]> {
  const places: [string, string, string][] = [
    ['directory', layout.directory, layout.user],
    ['state', layout.stateDirectory, layout.user],
    ['configuration', layout.configDirectory, ''],
    ['command', dirname(layout.command), ''],
  ]
  const findings: Finding[] = []
  for (const [check, path, user] of places) {
    const existing = await nearestExisting(path)
    const found = await lstat(existing)
    if (!found.isDirectory() && !found.isSymbolicLink()) {
      findings.push(failure(check, `expected a directory at ${existing}, found another file`))
      continue
    }
    // what does not exist yet is made by us; what exists is used by the service's user, where there is one already
    const someone = user !== '' && existing === path ? await findId(user) : null
    const own = existing === path && found.uid === 0 && isRoot() // a root's directory that is empty is given to the user
    const writable = () => access(existing, constants.W_OK | constants.X_OK)
    const reason = await (someone === null || own ? writable() : asUser(someone, writable)).then(
      () => null,
      (cause: unknown) => reasonOf(cause),
    )
    if (reason === null) findings.push(ok(check, path))
    else if (reason.includes('EROFS'))
      findings.push(
        failure(
          check,
          `${existing} is on a read-only file system`,
          'choose another place with `--prefix` or `--state-dir`',
        ),
      )
    else
      findings.push(
        failure(
          check,
          `expected ${user === '' ? 'us' : user} to be able to write in ${existing}: ${reason}`,
          'choose another place with `--prefix` or `--state-dir`',
        ),
      )
  }
  return findings
}

/** noexec, and an executable that is a mount of its own: nothing can be renamed over that. */
async function checkMounts({ layout }: Patient): Promise<Finding[]> {
  if (process.platform !== 'linux') return []
  const mounts = parseMounts(await readFile('/proc/self/mountinfo', 'utf8'))
  const directory = await nearestExisting(layout.directory)
  const mount = mountOf(mounts, directory)
  const findings: Finding[] = []
  if (mount?.options.includes('noexec')) {
    findings.push(
      failure(
        'mount',
        `${mount.path} is mounted noexec: nothing in ${layout.directory} would run`,
        'choose another place with `--prefix`',
      ),
    )
  }
  if (mounts.some(({ path }) => path === layout.executable)) {
    findings.push(
      failure(
        'mount',
        `${layout.executable} is a mount of its own: nothing can be renamed over it`,
        'mount its directory instead',
      ),
    )
  }
  // device numbers do not tell: on an overlay a file and its directory differ
  if ((await lstat(layout.executable).catch(() => null))?.isSymbolicLink()) {
    findings.push(
      failure(
        'mount',
        `${layout.executable} is a link, it may lead to another file system`,
        'put the file itself there',
      ),
    )
  }
  return findings.length > 0 ? findings : [ok('mount', `${mount?.path ?? '/'} allows programs`)]
}

async function checkSpace({ layout, executableBytes, receipt }: Patient): Promise<Finding[]> {
  const database = await stat(join(layout.stateDirectory, `${layout.service}.db`)).catch(() => null)
  const needs = new Map<number, { path: string; bytes: number; for: string[] }>()
  const need = async (path: string, bytes: number, what: string) => {
    const existing = await nearestExisting(path)
    const { dev } = await stat(existing)
    const sum = needs.get(dev) ?? { path: existing, bytes: 0, for: [] }
    needs.set(dev, { path: sum.path, bytes: sum.bytes + bytes, for: [...sum.for, what] })
  }
  await need(layout.directory, executableBytes * (1 + (receipt === null ? 0 : ASSET_SHARE)), 'the executable')
  await need(layout.stateDirectory, (database?.size ?? 0) * 1.1 + 1_000_000, 'a snapshot of the database')
  const findings: Finding[] = []
  for (const { path, bytes, for: what } of needs.values()) {
    const { bavail, bsize } = await statfs(path)
    const free = bavail * bsize
    const message = `${formatBytes(free)} free at ${path}, ${formatBytes(bytes)} needed for ${what.join(' and ')}`
    findings.push(
      free >= bytes
        ? ok('space', message)
        : failure(
            'space',
            `not enough space: ${message}`,
            'make room, or choose another place with `--prefix` or `--state-dir`',
          ),
    )
  }
  return findings
}

async function checkExecutable({ receipt }: Patient): Promise<Finding[]> {
  if (receipt === null) return [warning('executable', 'there is no install here yet', '`install` makes one')]
  const findings: Finding[] = []
  const tag = await installedTag(receipt.executable).catch((cause: unknown) => reasonOf(cause))
  if (/^v[0-9]/.test(tag)) findings.push(ok('executable', `${receipt.executable} is ${receipt.service} ${tag}`))
  else
    findings.push(
      failure(
        'executable',
        `${receipt.executable} does not run: ${tag}`,
        '`install` again, or `rollback`',
        'service_down',
      ),
    )
  const owner = await stat(receipt.executable).catch(() => null)
  const user = await findId(receipt.user)
  if (user === null) findings.push(failure('user', `expected the user ${receipt.user}, found none`, '`install` again'))
  else if (owner !== null && owner.uid !== user.uid) {
    findings.push(
      warning(
        'owner',
        `${receipt.executable} does not belong to ${receipt.user}`,
        `chown ${receipt.user} ${receipt.executable}`,
      ),
    )
  }
  const backup = `${receipt.executable}.backup`
  const backupTag = await installedTag(backup).catch((cause: unknown) => cause as Error)
  if (typeof backupTag === 'string') findings.push(ok('backup', `${backup} is ${backupTag}`))
  else if (await lstat(backup).catch(() => null))
    findings.push(
      warning('backup', `${backup} does not run: ${reasonOf(backupTag)}`, '`rollback <tag>` fetches a release instead'),
    )
  return findings
}

async function checkConfiguration({ receipt }: Patient): Promise<Finding[]> {
  if (receipt === null) return []
  const { address, token } = await readAccess(receipt.configPath)
  const findings: Finding[] = []
  const { mode } = await stat(receipt.configPath)
  if ((mode & 0o077) !== 0) {
    findings.push(
      warning(
        'configuration',
        `${receipt.configPath} holds the password and others can read it`,
        `chmod 600 ${receipt.configPath}`,
      ),
    )
  }
  if (token === null) {
    findings.push(
      failure(
        'configuration',
        `no dashboard.password is set in ${receipt.configPath}: the update endpoints are closed`,
        'set one and restart the service',
      ),
    )
  }
  if (
    'port' in address &&
    !(await supervisorFor(receipt).state()).active &&
    !(await isFree(address.host, address.port))
  ) {
    findings.push(
      failure(
        'port',
        `the service does not run, and something else listens on ${address.host}:${address.port}`,
        `end it, or change \`listen\` in ${receipt.configPath}`,
      ),
    )
  }
  return findings.length > 0 ? findings : [ok('configuration', receipt.configPath)]
}

/** The unit as it really is, drop-ins included. */
async function checkSandbox({ receipt, layout }: Patient): Promise<Finding[]> {
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
  const { stdout } = await run([
    ...systemctlFor(layout.scope),
    'show',
    ...names.map((name) => `--property=${name}`),
    `${layout.service}.service`,
  ])
  return judgeUnit(parseShow(stdout), receipt)
}

/** Pure: what `systemctl show` says against what an update has to do inside the unit. */
export function judgeUnit(unit: Readonly<Record<string, string>>, receipt: Receipt): Finding[] {
  const drop = `look for it in \`systemctl cat ${receipt.service}\``
  if (unit['LoadState'] !== 'loaded')
    return [
      failure(
        'unit',
        `expected the unit ${receipt.service}.service, it is ${unit['LoadState'] ?? 'not there'}`,
        '`install` again',
        'service_down',
      ),
    ]
  const findings: Finding[] = []
  const list = (name: string) =>
    (unit[name] ?? '')
      .split(' ')
      .filter(Boolean)
      .map((path) => path.replace(/^[-+]+/, ''))
  const directory = dirname(receipt.executable)
  const within = (path: string, top: string) => top === '/' || path === top || path.startsWith(`${top}/`)
  /** the deepest rule about a path wins */
  const depth = (paths: string[], path: string) =>
    Math.max(-1, ...paths.filter((top) => within(path, top)).map((top) => top.length))
  const system = unit['ProtectSystem'] ?? 'no'
  const closed =
    system === 'strict'
      ? ['/']
      : system === 'full'
        ? ['/usr', '/boot', '/efi', '/etc']
        : system === 'yes'
          ? ['/usr', '/boot', '/efi']
          : []
  const home = unit['ProtectHome'] ?? 'no'
  if (home !== 'no') closed.push('/home', '/root', '/run/user')
  const state = list('StateDirectory').map((name) => `/var/lib/${name}`)
  for (const [what, path, open] of [
    ['the executable', directory, list('ReadWritePaths')],
    ['the state', receipt.stateDirectory, [...list('ReadWritePaths'), ...state]],
  ] as const) {
    const shut = depth([...closed, ...list('ReadOnlyPaths'), ...list('InaccessiblePaths')], path)
    if (shut > depth([...open], path)) {
      findings.push(
        failure(
          'unit',
          `the sandbox of the unit forbids writing in ${path}, where ${what} is`,
          `${drop}; ReadWritePaths= must name the directory, not the file`,
        ),
      )
    }
  }
  if (depth(list('ReadWritePaths'), receipt.executable) > directory.length) {
    findings.push(failure('unit', `ReadWritePaths= names the executable itself: its neighbours stay read-only`, drop))
  }
  if (unit['MemoryDenyWriteExecute'] === 'yes')
    findings.push(failure('unit', 'MemoryDenyWriteExecute=yes kills a JIT compiler, and so the service', drop))
  if (depth(list('NoExecPaths'), directory) >= 0)
    findings.push(failure('unit', `NoExecPaths= forbids running what is in ${directory}`, drop))
  if (unit['Type'] !== 'notify' && unit['Type'] !== 'notify-reload')
    findings.push(warning('unit', `Type=${unit['Type'] ?? ''} does not follow a handover to another process`, drop))
  else if (unit['NotifyAccess'] !== 'all')
    findings.push(
      failure('unit', `NotifyAccess=${unit['NotifyAccess'] ?? ''} does not hear the successor; expected all`, drop),
    )
  if (unit['KillMode'] !== 'mixed')
    findings.push(
      warning(
        'unit',
        `KillMode=${unit['KillMode'] ?? ''}: expected mixed, so that a stop lets the main process drain`,
        drop,
      ),
    )
  if (unit['NeedDaemonReload'] === 'yes')
    findings.push(warning('unit', 'the unit on the disk is newer than the loaded one', 'systemctl daemon-reload'))
  return findings.length > 0
    ? findings
    : [ok('unit', `${receipt.service}.service lets the service replace its executable`)]
}

async function checkDatabase({ receipt }: Patient): Promise<Finding[]> {
  if (receipt === null) return []
  const path = join(receipt.stateDirectory, `${receipt.service}.db`)
  if ((await stat(path).catch(() => null)) === null) return [ok('database', `${path} is not there yet`)]
  // as the service's user: opening a database in WAL mode may make files beside it
  return await asUser(receipt.user, async () => {
    const { DatabaseSync } = await import('node:sqlite')
    try {
      const database = new DatabaseSync(path, { readOnly: true })
      try {
        database.exec('PRAGMA busy_timeout = 5000')
        const rows = database.prepare('PRAGMA integrity_check(5)').all() as { integrity_check: string }[]
        const said = rows.map((row) => row.integrity_check).join('; ')
        if (said === 'ok') return [ok('database', path)]
        return [
          failure(
            'database',
            `${path} is damaged: ${said.slice(0, 300)}`,
            `restore a snapshot from ${join(receipt.stateDirectory, 'update/snapshots')}`,
          ),
        ]
      } finally {
        database.close()
      }
    } catch (cause) {
      return [
        failure(
          'database',
          `${path} cannot be read: ${reasonOf(cause)}`,
          `restore a snapshot from ${join(receipt.stateDirectory, 'update/snapshots')}`,
        ),
      ]
    }
  })
}

async function checkFeed({ layout, receipt, feed }: Patient): Promise<Finding[]> {
  const setting = receipt === null ? feed : await feedOf(receipt)
  if (setting === null || setting === '')
    return [failure('feed', 'no feed is named', 'name one with `--feed`', 'invalid_settings')]
  const look = async (): Promise<Release | null> => {
    await using open = openFeed(setting, { service: layout.service, stateDirectory: null })
    return await open.latest(() => false)
  }
  try {
    // with the service's eyes: a folder that only root can read is of no use to it
    const release = await ((await findId(layout.user)) === null ? look() : asUser(layout.user, look))
    if (release === null) return [warning('feed', `${setting} has no release for this host`)]
    return [ok('feed', `${setting} has ${release.tag}`)]
  } catch (cause) {
    // the unit shows the service a folder that its user could not reach by itself
    const bound = isRoot() && receipt?.supervisor === 'systemd' && layout.feedFolder === setting
    const release = bound ? await look().catch(() => null) : null
    if (release !== null) return [ok('feed', `${setting} has ${release.tag}, for the service through its unit`)]
    return [
      failure(
        'feed',
        `${setting} cannot be used: ${reasonOf(cause)}`,
        'is it reachable from here, for the user of the service?',
        cause instanceof BatonError ? cause.code : 'check_failed',
      ),
    ]
  }
}

async function checkClock({ receipt, feed }: Patient): Promise<Finding[]> {
  const now = Date.now()
  if (receipt !== null && Date.parse(receipt.installedAt) > now + CLOCK_TOLERANCE_MS) {
    return [
      failure(
        'clock',
        `the clock says ${new Date(now).toISOString()}, before the install of ${receipt.installedAt}`,
        'set the clock: certificates cannot be checked with a wrong one',
      ),
    ]
  }
  const setting = receipt === null ? feed : await feedOf(receipt)
  const url =
    setting === null
      ? null
      : setting.startsWith('github:')
        ? 'https://api.github.com/'
        : /^https?:/.test(setting)
          ? setting
          : null
  const theirs = url === null ? null : await dateOf(url, 10_000).catch(() => null)
  if (theirs !== null && Math.abs(theirs.getTime() - now) > CLOCK_TOLERANCE_MS) {
    return [
      warning(
        'clock',
        `the clock says ${new Date(now).toISOString()}, the feed's says ${theirs.toISOString()}`,
        'set the clock: certificates cannot be checked with a wrong one',
      ),
    ]
  }
  return [ok('clock', new Date(now).toISOString())]
}

export interface Mount {
  path: string
  options: string[]
}

/** proc(5), mountinfo: field 5 is the mount point, 6 its options. */
export function parseMounts(text: string): Mount[] {
  const lines = text
    .split('\n')
    .filter(Boolean)
    .map((line) => line.split(' '))
  return lines.map((fields) => ({
    path: (fields[4] ?? '').replaceAll(/\\([0-7]{3})/g, (_all, code: string) =>
      String.fromCharCode(Number.parseInt(code, 8)),
    ),
    options: (fields[5] ?? '').split(','),
  }))
}

/** The last one mounted on the deepest path counts. */
export function mountOf(mounts: readonly Mount[], path: string): Mount | null {
  let best: Mount | null = null
  for (const mount of mounts) {
    const holds = mount.path === '/' || path === mount.path || path.startsWith(`${mount.path}/`)
    if (holds && mount.path.length >= (best?.path.length ?? 0)) best = mount
  }
  return best
}

async function nearestExisting(path: string): Promise<string> {
  let current = path
  while (current !== '/' && (await lstat(current).catch(() => null)) === null) current = dirname(current)
  return current
}

async function isFree(host: string, port: number): Promise<boolean> {
  if (port === 0) return true
  return await new Promise((resolve) => {
    const server = createServer()
    server.once('error', (error: NodeJS.ErrnoException) => resolve(error.code !== 'EADDRINUSE'))
    server.listen({ host, port }, () => server.close(() => resolve(true)))
  })
}

function ok(check: string, message: string): Finding {
  return { check, level: 'ok', message, hint: null, code: 'unexpected' }
}

function warning(check: string, message: string, hint: string | null = null): Finding {
  return { check, level: 'warning', message, hint, code: 'unexpected' }
}

function failure(check: string, message: string, hint: string | null = null, code: ErrorCode = 'refused'): Finding {
  return { check, level: 'failure', message, hint, code }
}
