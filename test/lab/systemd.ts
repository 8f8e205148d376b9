// Throwaway hosts with a real systemd, for tests: the interface of `systemd-host`. A host is up in half a second.
// Must hold: the end of the scope removes every host that a test has booted, however the test ends.
//
//   await using host = await bootHost()
//   await host.ok('systemctl', 'start', 'beacon')
//   await host.cut(); await host.power()     // a power cut, and the next morning

import { execFile, spawn, spawnSync } from 'node:child_process'
import { existsSync, readFileSync, statfsSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

export interface Ran {
  code: number
  stdout: string
  stderr: string
}

export interface Host extends AsyncDisposable {
  readonly name: string
  /** runs a command as root inside; never rejects for an exit code */
  run(command: readonly string[], options?: RunOptions): Promise<Ran>
  /** runs it and resolves to its stdout; rejects with its whole output if it fails */
  ok(...command: string[]): Promise<string>
  /** a path of the host as this machine sees it; not valid after a reboot */
  path(inside: string): Promise<string>
  /** goes before a command of this machine to run it in the host's network */
  network(): Promise<string[]>
  /** power cut */
  cut(): Promise<void>
  power(): Promise<void>
  off(): Promise<void>
}

export interface RunOptions {
  input?: string
  timeoutMs?: number
  /** runs as this user of the host */
  user?: string
  env?: Readonly<Record<string, string>>
}

const SCRIPT = join(import.meta.dirname, 'systemd-host')
const OUTPUT_MAX_BYTES = 32 * 1024 * 1024
/** between two looks, first and at most: a look at a host starts processes, and what is not there soon takes seconds */
const [LOOK_AGAIN_MS, LOOK_AGAIN_MOST_MS] = [40, 300]
const CGROUP2_MAGIC = 0x63677270
const CGROUPS = ['/sys/fs/cgroup', '/sys/fs/cgroup/unified'].find(
  (path) => existsSync(path) && statfsSync(path).type === CGROUP2_MAGIC,
)
const NAMESPACES = ['--mount', '--pid', '--uts', '--ipc', '--net', '--cgroup', '--root', '--wd']
const ENVIRONMENT = [
  'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
  'HOME=/root',
  'LANG=C.UTF-8',
  'SYSTEMD_PAGER=',
]

/** Why this machine can have no such host, or null. For `suite(name, { skip })`. */
export const noHosts: string | null = reasonAgainst()

let count = 0
/** names of hosts that are on */
const on = new Set<string>()

export interface BootOptions {
  /** name of the host's network namespace, `.` for this process's own; default: a new one with nothing but loopback */
  netns?: string
  /** a script that prepares the host's disk before it is switched on, and the script's environment */
  prepare?: string
  env?: Readonly<Record<string, string>>
  /** a switched-off host: the new one gets a copy of its disk, and is not prepared again */
  like?: Host
}

export async function bootHost({ netns, prepare, env = {}, like }: BootOptions = {}): Promise<Host> {
  const name = `h${process.pid}x${++count}`
  if (count === 1) leaveNone()
  on.add(name)
  const furnishing = {
    ...(prepare === undefined ? {} : { HOST_PREPARE: prepare }),
    ...(like === undefined ? {} : { HOST_LIKE: like.name }),
  }
  await script(['boot', name, ...(netns === undefined ? [] : [netns])], { ...env, ...furnishing })
  const host = hostNamed(name)
  try {
    await script(['wait', name])
  } catch (error) {
    await host.off()
    throw error
  }
  return host
}

/** Calls `probe` until it gives neither null nor false; rejects after `timeoutMs`, with the last error if there was one. */
export async function eventually<T>(
  what: string,
  probe: () => Promise<T | null | false>,
  timeoutMs = 60_000, // a busy machine needs it
): Promise<T> {
  const deadline = Date.now() + timeoutMs
  let last: unknown
  for (let pauseMs = LOOK_AGAIN_MS; ; pauseMs = Math.min(pauseMs * 1.5, LOOK_AGAIN_MOST_MS)) {
    try {
      const found = await probe()
      if (found !== null && found !== false) return found
    } catch (error) {
      last = error
    }
    if (Date.now() > deadline) throw new Error(`${what}: not within ${timeoutMs} ms`, { cause: last })
    await sleep(pauseMs)
  }
}

function hostNamed(name: string): Host {
  const pid = async () => initPid(name)
  const run: Host['run'] = (command, { input = '', timeoutMs = 120_000, user, env = {} } = {}) =>
    new Promise((resolve, reject) => {
      const as = user === undefined ? [] : ['runuser', '-u', user, '--']
      const set =
        Object.keys(env).length === 0 ? [] : ['env', ...Object.entries(env).map(([key, value]) => `${key}=${value}`)]
      const [enter = '', ...inside] = entering(name)
      const child = spawn(enter, [...inside, ...as, ...set, ...command], {
        timeout: timeoutMs,
        killSignal: 'SIGKILL',
      })
      const output = { stdout: '', stderr: '' }
      for (const stream of ['stdout', 'stderr'] as const) {
        child[stream].setEncoding('utf8').on('data', (text: string) => (output[stream] += text))
      }
      child.on('error', reject)
      child.on('close', (code) => resolve({ code: code ?? 255, ...output }))
      child.stdin.on('error', () => {}) // the command may not read its input
      child.stdin.end(input)
    })
  const off = async () => {
    await script(['off', name])
    on.delete(name)
  }
  return {
    name,
    run,
    async ok(...command) {
      const { code, stdout, stderr } = await run(command)
      if (code !== 0) throw new Error(`${command.join(' ')}: ended with ${code}\n${stdout}${stderr}`)
      return stdout
    },
    path: async (inside) => `/proc/${await pid()}/root${inside}`,
    network: async () => ['nsenter', `--net=/proc/${await pid()}/ns/net`],
    cut: async () => void (await script(['cut', name])),
    async power() {
      await script(['power', name])
      await script(['wait', name])
    },
    off,
    [Symbol.asyncDispose]: off,
  }
}

/** What `systemd-host exec` does, without the shell and its five processes: a test looks at its host hundreds of times. */
function entering(name: string): string[] {
  const pid = initPid(name)
  if (pid === '') return ['sh', '-c', `echo "systemd-host: ${name} is not running" >&2; exit 125`]
  return ['nsenter', '-t', pid, ...NAMESPACES, 'env', '-i', ...ENVIRONMENT]
}

/** Process 1 of the host as this machine sees it; empty if the host is off. */
function initPid(name: string): string {
  try {
    return readFileSync(join(CGROUPS ?? '', `baton-${name}`, 'init.scope/cgroup.procs'), 'utf8').split('\n', 1)[0] ?? ''
  } catch {
    return ''
  }
}

function script(args: string[], env: Readonly<Record<string, string>> = {}): Promise<string> {
  return new Promise((resolve, reject) => {
    const options = { maxBuffer: OUTPUT_MAX_BYTES, timeout: 60_000, env: { ...process.env, ...env } }
    execFile(SCRIPT, args, options, (error, stdout, stderr) => {
      if (error === null) resolve(stdout)
      else reject(new Error(`systemd-host ${args.join(' ')}: ${stderr || error.message}`))
    })
  })
}

/** Removes hosts when this process ends. They are not its children, and would outlive a test that is killed for its deadline. */
function leaveNone(): void {
  process.on('exit', () => {
    for (const name of on) spawnSync(SCRIPT, ['off', name], { stdio: 'ignore' })
  })
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.once(signal, () => process.exit(1))
}

function reasonAgainst(): string | null {
  if (process.platform !== 'linux') return 'needs Linux'
  if (process.getuid?.() !== 0) return 'needs root'
  if (!existsSync('/lib/systemd/systemd') || !existsSync('/usr/bin/dbus-daemon')) return 'needs systemd and dbus'
  return CGROUPS === undefined ? 'needs a cgroup2 mount' : null
}
