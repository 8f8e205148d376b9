// The process of a command in a transient unit, in the sandbox of the service: what it starts, the service's own executable first of
// all, gets no further than the service does, and goes when the command goes. Must hold: what an
// environment file holds stands in no argument and in no property, which everybody can read.

import { existsSync } from 'node:fs'
import { lstat, readFile } from 'node:fs/promises'
import { dirname, isAbsolute } from 'node:path'
import { findProgram, run } from '../../lib/shell.ts'
import type { Identity } from '../place/identity.ts'
import { trustIn } from '../place/trusted.ts'
import { parseShow } from '../supervisor/systemd.ts'
import { spawnWatched, type Worker } from './drop.ts'

/** The service as a unit knows it. */
export interface Sandbox {
  service: string
  /** text of the unit as an install writes it, whether it stands there or not */
  unit: string
  /** what the process must be able to write: the directory of the executable, and the state */
  places: readonly string[]
  /** folder of the feed, if only root decides what is there: seen where it is hidden */
  feedFolder: string | null
}

/** systemd.exec(5): what makes a sandbox, and the environment. Not RemoveIPC=, which would take what the service has. */
const KEPT =
  /^(?:NoNewPrivileges|CapabilityBoundingSet|AmbientCapabilities|SecureBits|Protect\w+|Private\w+|Restrict\w+|ProcSubset|LockPersonality|MemoryDenyWriteExecute|SystemCall\w+|\w+Paths|TemporaryFileSystem|IPAddress\w+|SocketBind\w+|Device\w+|SupplementaryGroups|AppArmorProfile|SELinuxContext|Environment|EnvironmentFile|UnsetEnvironment)$/
const PATHS = /Paths$/
const BASE = ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', 'LANG=C.UTF-8']
const STOP_TIMEOUT_MS = 30_000
let count = 0

/** Whether there is a systemd here that starts units for root. */
export async function canConfine(): Promise<boolean> {
  // sd_booted(3); what a unit's ends are passed over is D-Bus
  if (!existsSync('/run/systemd/system') || !existsSync('/run/dbus/system_bus_socket')) return false
  return (await findProgram('systemd-run')) !== null
}

/** Pure: the slice of a service's commands. A `-` in its name would be a slice below another. */
export function sliceOf(service: string): string {
  return `baton-${service.replaceAll('-', String.raw`\x2d`)}.slice`
}

/** Ends what commands of root's have left, if they were killed; by the slice, never by the user. */
export async function endSlice(service: string): Promise<void> {
  if (await canConfine())
    await run(['systemctl', 'stop', sliceOf(service)], { allowFailure: true, timeoutMs: STOP_TIMEOUT_MS })
}

/** `withDropIns` false: the sandbox as the installer wrote it, where the operator's changes keep a process from starting. */
export async function startConfined(
  program: readonly string[],
  { uid, gid }: Identity,
  sandbox: Sandbox,
  environment: Readonly<Record<string, string>>,
  { deadlineMs, withDropIns }: { deadlineMs: number; withDropIns: boolean },
): Promise<Worker> {
  const { service, unit, places, feedFolder } = sandbox
  const name = `baton-${service}-command-${process.pid}-${++count}.service`
  const { texts, isKnown } = await unitAsItIs(service)
  const properties = [
    'WorkingDirectory=/',
    'KillSignal=SIGKILL', // what is left when the command has ended goes at once
    'TimeoutStopSec=5',
    `RuntimeMaxSec=${Math.ceil(deadlineMs / 1000)}`,
    `Slice=${sliceOf(service)}`,
    `User=${uid}`,
    `Group=${gid}`,
    ...[...BASE, ...Object.entries(environment).map(([key, value]) => `${key}=${value}`)].map(
      (pair) => `Environment=${JSON.stringify(pair)}`,
    ),
    ...[unit, ...(withDropIns ? texts : [])].flatMap(sandboxOf).filter(isKnown),
    `ReadWritePaths=${(await Promise.all(places.map(nearestExisting))).map((path) => `-${path}`).join(' ')}`,
    // an installer's own program lies below /tmp, of which a service has one of its own
    ...program.filter((word) => isAbsolute(word) && isHidden(word)).map((path) => `BindReadOnlyPaths=-${path}`),
    ...(feedFolder !== null && isHidden(feedFolder) ? [`BindReadOnlyPaths=-${feedFolder}`] : []),
  ]
  const flags = ['--quiet', '--pipe', '--wait', '--collect', `--unit=${name}`]
  const command = ['systemd-run', ...flags, ...properties.map((one) => `--property=${one}`), '--', ...program]
  const ask = async (words: string[]) =>
    void (await run(['systemctl', ...words, name], { allowFailure: true, timeoutMs: STOP_TIMEOUT_MS }))
  return {
    child: spawnWatched(command, { env: process.env }),
    signal: (signal) => ask(['kill', '--kill-who=main', `--signal=${signal}`]),
    end: () => ask(['kill', '--signal=SIGKILL']),
    endRest: async () => {}, // systemd has
  }
}

/**
 * Pure: the settings of `[Service]` that make its sandbox, in their order, each as systemd-run takes it. A path that is not there
 * is no reason not to start: a command has to say what is wrong. What holds a specifier is left out: only units know those.
 */
export function sandboxOf(text: string): string[] {
  let section = ''
  const found: string[] = []
  for (const line of text
    .replaceAll(/\\\n/g, ' ')
    .split('\n')
    .map((one) => one.trim())) {
    if (line.startsWith('[')) section = line
    const [, key = '', value = ''] = /^(\w+)\s*=\s*(.*)$/.exec(line) ?? []
    if (section !== '[Service]' || !KEPT.test(key) || /%[^%]/.test(value)) continue
    found.push(`${key}=${PATHS.test(key) ? value.split(/\s+/).map(optional).join(' ') : value}`)
  }
  return found
}

function optional(path: string): string {
  return path === '' || path.startsWith('-') ? path : `-${path}`
}

/** The operator's own changes of the unit, as far as only root can have written them; and which settings this systemd has. */
async function unitAsItIs(service: string): Promise<{ texts: string[]; isKnown(setting: string): boolean }> {
  const { stdout } = await run(['systemctl', 'show', '--all', `${service}.service`], { timeoutMs: STOP_TIMEOUT_MS })
  const shown = parseShow(stdout)
  const paths = (shown['DropInPaths'] ?? '').split(' ').filter(Boolean)
  const texts = paths.map(async (path) => {
    const trust = await trustIn(path)
    return trust.trusted && trust.found?.isFile() === true ? await readFile(path, 'utf8') : ''
  })
  // in a unit's file an older systemd passes over what it does not know; for systemd-run that is an error
  const isKnown = (setting: string) => {
    const [name = ''] = setting.split('=', 1)
    return Object.hasOwn(shown, name) || name === 'EnvironmentFile'
  }
  return { texts: await Promise.all(texts), isKnown }
}

/** An install makes its directories while the process runs, which must see them then. */
async function nearestExisting(path: string): Promise<string> {
  const found = await lstat(path).catch(() => null)
  return found !== null || path === '/' ? path : await nearestExisting(dirname(path))
}

function isHidden(path: string): boolean {
  return /^\/(?:var\/)?tmp\/|^\/(?:home|root|run\/user)\//.test(path)
}
