// Whether the service of this executable lives already, when a person starts the executable itself: a second process of it would work on
// the same data. By what the kernel says of each process, since whoever is killed writes nothing down. An application that sets
// `process.title` is known by its supervisor: by its unit, or by the pid that the supervision without systemd has noted.
// Must hold: what supervisors, handovers and the application itself start is never refused. If in doubt, this process starts.

import { readdirSync, readFileSync, realpathSync } from 'node:fs'
import { dirname, join } from 'node:path'
import {
  descendantsOf,
  INHERITANCE,
  PARENT,
  receiptPath,
  startTimeOf,
  systemReceiptPath,
} from '../../../agent/first.ts'
import { type OwnWords, refuse } from './release.ts'

/** Ends this process if a person has started it beside the service that an installer has put there, or has started root's copy of it. */
export function refuseBeside(
  { service, commands }: Pick<OwnWords, 'service'> & Partial<Pick<OwnWords, 'commands'>>,
  executable: string,
): void {
  if (process.platform !== 'linux' || process.env['BATON_CONTAINER'] === '1') return // it may see the host's processes
  const words = commands === 'baton' ? `${service} baton` : service
  // root's copy may be of another release than the service
  if (dirname(executable) === dirname(systemReceiptPath(service)))
    refuse(
      'this command does not start the service itself',
      `run \`${words} start\` to start the service, or \`${words} --help\``,
    )
  const receipt = receiptOf(service, executable)
  const found = livingService(receipt?.executable ?? executable) ?? supervisedService(service, receipt)
  if (found === null || isBelow(found.pid) || hasOtherData(found.config)) return
  refuse(
    `expected no other process of ${service}, found process ${found.pid}, which uses ${found.config}: both would use the same data`,
    `run \`${words} status\` to see it, or \`${words} stop\` to stop it; to use other data, set a different STATE_DIRECTORY`,
  )
}

/**
 * Whether these words start the service itself, and no tool beside it: those that every start of it has, or none. None may be a tool
 * if the service's own begin with a word, such as `serve`.
 */
export function startsService(argv: readonly string[], args: readonly string[]): boolean {
  if (argv.length === 0) return args.length === 0 || args[0]?.startsWith('-') === true
  if (args[0]?.startsWith('{') === true) return false // any word fits
  const isWord = (word: string, [start = '', ...filled]: string[]) =>
    filled.length === 0 ? word === start : word.startsWith(start)
  return argv.length === args.length && args.every((text, i) => isWord(argv[i] ?? '', text.split(/\{\w+\}/)))
}

/**
 * Whether these words are the application's, typed by a person beside an install of this executable: they are to work on its data. Not
 * if the application itself has started this process, nor with another STATE_DIRECTORY than the install's.
 */
export function belongsToInstall(argv: readonly string[], { service, args }: OwnWords, executable: string): boolean {
  const { [INHERITANCE]: inheritance, [PARENT]: parent, BATON_CONTAINER, STATE_DIRECTORY } = process.env
  if (process.platform !== 'linux' || BATON_CONTAINER === '1') return false
  const [word = ''] = argv
  if (word === '' || word.includes('/') || startsService(argv, args)) return false
  if (inheritance !== undefined || parent !== undefined) return false
  const receipt = receiptOf(service, executable)
  if (receipt?.configPath === undefined) return false
  return STATE_DIRECTORY === undefined || STATE_DIRECTORY === receipt.stateDirectory
}

interface Living {
  pid: number
  /** path of its configuration */
  config: string
}

/** What the installer has written, as far as it matters here. */
interface Receipt {
  executable: string
  supervisor: string
  stateDirectory: string
  configPath: string
}

/** The process that a supervisor, or a handover, has started from the same path. */
function livingService(executable: string): Living | null {
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name) || name === String(process.pid)) continue
    const words = textOf(`/proc/${name}/cmdline`).split('\0') // empty for a process that has ended
    const at = words.indexOf('serve', 1)
    const [file = '', , flag, config = ''] = words.slice(at - 1)
    if (at < 1 || flag !== '--config' || !isSame(file, executable) || depthOf(name) > depthOf('self')) continue
    return { pid: Number(name), config }
  }
  return null
}

/** The receipt that names this executable, or whose folder has root's copy of it, which the command is. */
function receiptOf(service: string, executable: string): Partial<Receipt> | null {
  const paths = [systemReceiptPath(service), receiptPath(executable)]
  const isCopy = dirname(executable) === dirname(paths[0] ?? '')
  const receipts = paths.map((path) => objectIn<Receipt>(path))
  return receipts.find((one) => one.executable !== undefined && (isCopy || isSame(one.executable, executable))) ?? null
}

/** Whatever the process calls itself. */
function supervisedService(service: string, receipt: Partial<Receipt> | null): Living | null {
  const { supervisor, stateDirectory = '', configPath: config = '' } = receipt ?? {}
  if (supervisor === undefined) return null
  if (supervisor === 'none') {
    const path = join(stateDirectory, 'run', `${service}.pid`)
    const noted = objectIn<{ service: { pid: number; startTime: string } | null }>(path).service ?? null
    return noted !== null && noted.startTime === startTimeOf(noted.pid) ? { pid: noted.pid, config } : null
  }
  const isOfUnit = (name: string) =>
    new RegExp(String.raw`/${service}\.service$`, 'm').test(textOf(`/proc/${name}/cgroup`))
  const pid = isOfUnit('self') ? undefined : readdirSync('/proc').find((name) => /^\d+$/.test(name) && isOfUnit(name))
  return pid === undefined || depthOf(pid) > depthOf('self') ? null : { pid: Number(pid), config }
}

function objectIn<T>(path: string): Partial<T> {
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as Partial<T>
  } catch {
    return {}
  }
}

function isSame(file: string, executable: string): boolean {
  if (file === executable || !file.startsWith('/')) return file === executable
  try {
    return realpathSync(file) === executable
  } catch {
    return false // what replaces it is not there yet
  }
}

/** How many process namespaces deep: a container on this host may have a service at the same path. */
function depthOf(name: string): number {
  return (
    /^NSpid:(.*)$/m
      .exec(textOf(`/proc/${name}/status`))?.[1]
      ?.trim()
      .split(/\s+/).length ?? 1
  )
}

/** Whether this process has been started below the other one: then the application has started it, and not a person. */
function isBelow(pid: number): boolean {
  return descendantsOf(pid).some((one) => one.pid === process.pid)
}

function hasOtherData(config: string): boolean {
  const { STATE_DIRECTORY: own } = process.env
  if (own === undefined) return false
  return objectIn<{ stateDirectory: string }>(config).stateDirectory !== own // or it is another user's
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
