// The oracle that catches one loss in a million: server and clients run in a separate network namespace, and the kernel's counters
// say whether any connection was reset or dropped. Nothing outside the namespace can move them.
// Must never break: everything that a command starts inside ends, with all its children, when the command ends or its time is up.

import { spawn, spawnSync } from 'node:child_process'
import { readFileSync, readlinkSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

/** None of these may move during a handover. */
export interface Counters {
  /** resets sent */
  TcpOutRsts: number
  /** established connections that were reset */
  EstabResets: number
  /** connections dropped before they were accepted */
  ListenDrops: number
  /** of these: because the queue was full */
  ListenOverflows: number
}

/** The counters of this process's network namespace, or of another process's. The same as `nstat -az`. */
export function counters(pid: number | 'self' = 'self'): Counters {
  const snmp = readFileSync(`/proc/${pid}/net/snmp`, 'utf8')
  const netstat = readFileSync(`/proc/${pid}/net/netstat`, 'utf8')
  return {
    TcpOutRsts: counter(snmp, 'Tcp', 'OutRsts'),
    EstabResets: counter(snmp, 'Tcp', 'EstabResets'),
    ListenDrops: counter(netstat, 'TcpExt', 'ListenDrops'),
    ListenOverflows: counter(netstat, 'TcpExt', 'ListenOverflows'),
  }
}

/** By how much each counter moved. */
export function moved(before: Counters, after: Counters): Counters {
  return {
    TcpOutRsts: after.TcpOutRsts - before.TcpOutRsts,
    EstabResets: after.EstabResets - before.EstabResets,
    ListenDrops: after.ListenDrops - before.ListenDrops,
    ListenOverflows: after.ListenOverflows - before.ListenOverflows,
  }
}

/** Two lines begin with `prefix:`: the first has the names, the second the values. */
function counter(table: string, prefix: string, name: string): number {
  const [names = [], values = []] = table
    .split('\n')
    .filter((line) => line.startsWith(`${prefix}: `))
    .map((line) => line.split(' '))
  const value = Number(values[names.indexOf(name)])
  if (!Number.isSafeInteger(value)) throw new Error(`the kernel does not tell \`${prefix}.${name}\``)
  return value
}

export interface NetnsOptions {
  cwd?: string
  env?: NodeJS.ProcessEnv
  /** time after which the command and its children are killed. Default 120000 */
  timeoutMs?: number
  /** also shows the command's stderr here as it comes; stdout is the result */
  echo?: boolean
}

export interface NetnsResult {
  code: number | null
  signal: NodeJS.Signals | null
  stdout: string
  stderr: string
}

const OUTPUT_MAX_CHARACTERS = 16 * 1024 * 1024
const TIMEOUT_MS = 120_000

/** The flags of `unshare` that work here, or why none do. */
let known: { flags: string[] } | { reason: string } | null = null

/** Null if `inNetns` works, else why it does not (for the message of a skipped test). */
export function netnsProblem(): string | null {
  const found = flags()
  return 'reason' in found ? found.reason : null
}

/**
 * Runs a command in a new network namespace with its own loopback up. It is also in a new process namespace, which ends with the
 * command, so that nothing is left behind. Works as root; also as any other user, if user namespaces are allowed.
 */
export async function inNetns(command: readonly string[], options: NetnsOptions = {}): Promise<NetnsResult> {
  const found = flags()
  if ('reason' in found) throw new Error(`no network namespace: ${found.reason}`)
  const { cwd = process.cwd(), env = process.env, timeoutMs = TIMEOUT_MS, echo = false } = options
  const child = spawn('unshare', [...found.flags, '--', ...WITH_LOOPBACK, ...command], {
    cwd,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let stdout = ''
  let stderr = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout = (stdout + text).slice(-OUTPUT_MAX_CHARACTERS)
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr = (stderr + text).slice(-OUTPUT_MAX_CHARACTERS)
    if (echo) process.stderr.write(text)
  })
  const killer = setTimeout(() => child.kill('SIGKILL'), timeoutMs) // `--kill-child` then kills everything inside
  const onExit = (): void => void child.kill('SIGKILL')
  process.once('exit', onExit)
  try {
    return await new Promise((resolve, reject) => {
      child.on('error', reject)
      child.on('close', (code, signal) => resolve({ code, signal, stdout, stderr }))
    })
  } finally {
    clearTimeout(killer)
    process.off('exit', onExit)
  }
}

export interface Neighbour extends AsyncDisposable {
  /** goes before a command to run it in the neighbour's namespace */
  prefix: string[]
  /** address of this namespace, as the neighbour sees it */
  address: string
}

/**
 * Inside `inNetns`: makes a second namespace for the clients, on the other end of a cable. The counters of this namespace are then
 * the server's alone. A client that is slow to close may send a reset after a connection that has ended well.
 */
export async function neighbour(): Promise<Neighbour> {
  const holder = spawn('unshare', ['--net', '--', 'sleep', '3600'], { stdio: 'ignore' })
  const { pid } = holder
  if (pid === undefined) throw new Error('no second network namespace')
  const own = readlinkSync('/proc/self/ns/net')
  const deadline = Date.now() + 5000
  while (readlinkSync(`/proc/${pid}/ns/net`) === own) {
    if (Date.now() > deadline) throw new Error('no second network namespace within 5 s')
    await sleep(5)
  }
  const prefix = ['nsenter', `--net=/proc/${pid}/ns/net`, '--']
  const commands = [
    ['ip', 'link', 'add', 'here', 'type', 'veth', 'peer', 'name', 'there', 'netns', String(pid)],
    ['ip', 'addr', 'add', '10.231.0.1/24', 'dev', 'here'],
    ['ip', 'link', 'set', 'here', 'up'],
    [...prefix, 'ip', 'addr', 'add', '10.231.0.2/24', 'dev', 'there'],
    [...prefix, 'ip', 'link', 'set', 'there', 'up'],
    [...prefix, 'ip', 'link', 'set', 'lo', 'up'],
  ]
  for (const [file = '', ...args] of commands) {
    const { status, stderr } = spawnSync(file, args, { encoding: 'utf8', timeout: 10_000 })
    if (status !== 0) throw new Error(`${file} ${args.join(' ')}: ${stderr.trim()}`)
  }
  return {
    prefix,
    address: '10.231.0.1',
    async [Symbol.asyncDispose]() {
      const ended = new Promise((resolve) => holder.once('exit', resolve))
      holder.kill('SIGKILL')
      await ended
    },
  }
}

/** The shell stays, as process 1 of the namespace: it reaps orphans. */
const WITH_LOOPBACK = ['sh', '-c', 'ip link set lo up && "$@"; exit $?', 'sh']

function flags(): NonNullable<typeof known> {
  known ??= findFlags()
  return known
}

function findFlags(): NonNullable<typeof known> {
  if (process.platform !== 'linux') return { reason: `network namespaces are Linux's, this is ${process.platform}` }
  const isolation = ['--net', '--pid', '--fork', '--kill-child=SIGKILL', '--mount-proc']
  let reason = ''
  for (const candidate of [isolation, ['--user', '--map-root-user', ...isolation]]) {
    const tried = spawnSync('unshare', [...candidate, '--', ...WITH_LOOPBACK, 'true'], {
      encoding: 'utf8',
      timeout: 10_000,
    })
    if (tried.status === 0) return { flags: candidate }
    reason = tried.error?.message ?? (tried.stderr.trim() || `unshare ended with ${tried.signal ?? tried.status}`)
  }
  return { reason }
}
