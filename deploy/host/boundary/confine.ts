// Starts a command's worker, or a word of the application, in a transient unit with the service's sandbox. Whatever the worker starts,
// above all the service's own executable, can do no more than the service can, and ends when the command ends.
// Must hold: no value from an environment file appears in an argument or a property, which everybody can read.

import { existsSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { isAbsolute } from 'node:path'
import { nearestExisting } from '../../../agent/install.ts'
import { BASE_ENVIRONMENT } from '../../lib/passed.ts'
import { findProgram, run } from '../../lib/shell.ts'
import { idOf, type Identity } from '../place/identity.ts'
import { trustIn } from '../../lib/trusted.ts'
import { parseShow, showUnit } from '../supervisor/systemd.ts'
import { spawnWatched, type Worker } from './drop.ts'
import { environmentFiles, parseEnvironment } from './environment.ts'

/** What the transient unit takes from the service. */
export interface Sandbox {
  service: string
  /** text of the unit as an install writes it, whether the file exists or not */
  unit: string
  /** the worker must be able to write here: the directory of the executable, and the state directory */
  places: readonly string[]
}

/**
 * systemd.exec(5): the settings of a sandbox, and the environment. Not the capabilities, which a service may need for a port below 1024: no
 * command does. Not RemoveIPC=: it would remove the running service's objects.
 * Not MemoryDenyWriteExecute=: it kills Node, and `doctor` has to name it; no service runs under it either.
 */
const KEPT =
  /^(?:NoNewPrivileges|SecureBits|Protect\w+|Private\w+|Restrict\w+|ProcSubset|LockPersonality|SystemCall\w+|\w+Paths|TemporaryFileSystem|NetworkNamespacePath|IPCNamespacePath|IPAddress\w+|SocketBind\w+|Device\w+|SupplementaryGroups|AppArmorProfile|SELinuxContext|Environment|EnvironmentFile|UnsetEnvironment)$/
const PATHS = /Paths$/
const STOP_TIMEOUT_MS = 30_000
let count = 0

/** Whether systemd runs here and starts units for root. */
export async function canConfine(): Promise<boolean> {
  // sd_booted(3); systemd-run passes stdin, stdout and stderr to the unit over D-Bus
  if (!existsSync('/run/systemd/system') || !existsSync('/run/dbus/system_bus_socket')) return false
  return (await findProgram('systemd-run')) !== null
}

/** Pure: the slice of a service's commands. An unescaped `-` in the name would put the slice below another one. */
export function sliceOf(service: string): string {
  return `baton-${service.replaceAll('-', String.raw`\x2d`)}.slice`
}

/** Ends what root's commands left behind when they were killed: everything in the slice, never everything of the user. */
export async function endSlice(service: string): Promise<void> {
  if (await canConfine())
    await run(['systemctl', 'stop', sliceOf(service)], { allowFailure: true, timeoutMs: STOP_TIMEOUT_MS })
}

/** `withDropIns` false: the sandbox as the installer wrote it, for when the operator's drop-ins keep a process from starting. */
export async function startConfined(
  program: readonly string[],
  { uid, gid }: Identity,
  sandbox: Sandbox,
  environment: Readonly<Record<string, string>>,
  { deadlineMs, withDropIns }: { deadlineMs: number; withDropIns: boolean },
): Promise<Worker> {
  const { service, unit, places } = sandbox
  const name = `baton-${service}-command-${process.pid}-${++count}.service`
  const properties = [
    'WorkingDirectory=/',
    'KillSignal=SIGKILL', // ends at once what is left after the command
    'TimeoutStopSec=5',
    `RuntimeMaxSec=${Math.ceil(deadlineMs / 1000)}`,
    `Slice=${sliceOf(service)}`,
    `User=${uid}`,
    `Group=${gid}`,
    ...settingsOf({ ...BASE_ENVIRONMENT, ...environment }),
    ...(await wallsOf(service, unit, withDropIns)),
    // the worker must see the directories that an install makes while it runs
    `ReadWritePaths=${(await Promise.all(places.map(nearestExisting))).map((path) => `-${path}`).join(' ')}`,
    // an installer's program lies below /tmp, and PrivateTmp= gives a service another /tmp
    ...program.filter((word) => isAbsolute(word) && isHidden(word)).map((path) => `BindReadOnlyPaths=-${path}`),
  ]
  const ask = async (words: string[], allowFailure: boolean) =>
    void (await run(['systemctl', 'kill', ...words, name], { allowFailure, timeoutMs: STOP_TIMEOUT_MS }))
  return {
    child: spawnWatched(systemdRun(name, '--pipe', properties, program), { env: process.env }),
    signal: (signal) => ask(['--kill-who=main', `--signal=${signal}`], false),
    end: () => ask(['--signal=SIGKILL'], true),
    endRest: async () => {}, // systemd has ended the rest
  }
}

export interface Word {
  service: string
  /** text of the unit as an install writes it */
  unit: string
  user: string
  stateDirectory: string
  /** beside what the unit has; nothing secret */
  environment: Readonly<Record<string, string>>
  /** whether stdin, stdout and stderr are a terminal: the word then has one of its own */
  hasTerminal: boolean
}

/** a shell between: systemd-run says 0 of a word that a signal has ended, and a shell says 128 and more */
const AS_A_SHELL = `trap : HUP INT TERM; /usr/bin/env "$@"; exit $?`

/** The command that runs a word of the application within the service's walls, and the unit in which it runs. */
export async function confineWord(program: readonly string[], word: Word): Promise<{ name: string; words: string[] }> {
  const { service, unit, user, stateDirectory, environment, hasTerminal } = word
  const name = `baton-${service}-word-${process.pid}.service`
  const { UMask = '0077', ...shown } = await showUnit('system', `${service}.service`, OF_UNIT)
  const properties = [
    `WorkingDirectory=${stateDirectory}`,
    `User=${user}`,
    `Group=${(await idOf(user)).gid}`,
    `UMask=${UMask}`,
    ...(await wallsOf(service, unit, true)).filter((one) => !/^Environment(?:File)?=/.test(one)),
    `ReadWritePaths=-${stateDirectory}`,
    // as systemd has read them: it has expanded what a unit's text may hold
    ...settingsOf(parseEnvironment(shown['Environment'] ?? '')),
    ...environmentFiles(shown['EnvironmentFiles'] ?? '').map((path) => `EnvironmentFile=-${path}`),
  ]
  const own = Object.entries(environment).map(([key, value]) => `${key}=${value}`)
  const command = ['/bin/sh', '-c', AS_A_SHELL, 'sh', ...own, ...program].map((one) => one.replaceAll('$', '$$$$')) // systemd expands $
  return { name, words: systemdRun(name, hasTerminal ? '--pty' : '--pipe', properties, command) }
}

function systemdRun(unit: string, streams: string, properties: readonly string[], command: readonly string[]) {
  const flags = ['--quiet', streams, '--wait', '--collect', `--unit=${unit}`]
  return ['systemd-run', ...flags, ...properties.map((one) => `--property=${one}`), '--', ...command]
}

function settingsOf(environment: Readonly<Record<string, string>>): string[] {
  return Object.entries(environment).map(([key, value]) => `Environment=${JSON.stringify(`${key}=${value}`)}`)
}

const OF_UNIT = ['UMask', 'Environment', 'EnvironmentFiles']

/** The sandbox's settings, and the environment, as the unit and the operator's drop-ins have them. No capability is among them. */
export async function wallsOf(service: string, unit: string, withDropIns: boolean): Promise<string[]> {
  const { texts, isKnown } = await unitAsItIs(service)
  const found = [unit, ...(withDropIns ? texts : [])].flatMap(sandboxOf).filter(isKnown)
  return [...found, 'CapabilityBoundingSet=', 'AmbientCapabilities=']
}

/**
 * Pure: the settings of `[Service]` that make its sandbox, in their order, each as systemd-run takes it. A missing path does not
 * keep the worker from starting: a command has to say what is wrong. Skips a setting with a specifier: only units expand those.
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

/** The texts of the operator's drop-ins that only root can have written, and which settings this systemd knows. */
async function unitAsItIs(service: string): Promise<{ texts: string[]; isKnown(setting: string): boolean }> {
  const { stdout } = await run(['systemctl', 'show', '--all', `${service}.service`], { timeoutMs: STOP_TIMEOUT_MS })
  const shown = parseShow(stdout)
  const paths = (shown['DropInPaths'] ?? '').split(' ').filter(Boolean)
  const texts = paths.map(async (path) => {
    const trust = await trustIn(path)
    return trust.trusted && trust.found?.isFile() === true ? await readFile(path, 'utf8') : ''
  })
  // an older systemd ignores an unknown setting in a unit file; systemd-run fails on it
  const isKnown = (setting: string) => {
    const [name = ''] = setting.split('=', 1)
    return Object.hasOwn(shown, name) || name === 'EnvironmentFile'
  }
  return { texts: await Promise.all(texts), isKnown }
}

function isHidden(path: string): boolean {
  return /^\/(?:var\/)?tmp\/|^\/(?:home|root|run\/user)\//.test(path)
}
