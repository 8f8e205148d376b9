// What a service costs as a release, beside the same service started by plain `node`, without the package: start, memory and disk. Both
// start in turn, on the same machine, each on its own copy of the data.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { cp, lstat, readdir, readFile, realpath } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { provideNode } from '../../../deploy/make/node.ts'
import { freePort } from '../../fixtures/install.ts'

/** the release, and plain Node */
type Pair = readonly [release: number, node: number]

export interface Beside {
  /** from the start to the first answer, medians */
  startMs: Pair
  /** resident, a moment after it, medians */
  memoryBytes: Pair
  /** the executable with what it unpacks; Node with the folder */
  diskBytes: Pair
}

export interface BesideOptions {
  service: string
  /** of the adopter; the service is installed there, and stopped */
  home: string
  folder: string
  /** starts the service without the package: a path in the folder */
  plain: string
  environment: NodeJS.ProcessEnv & { HOME: string }
}

const STARTS = 5
const START_MS = 60_000
/** how long it rests before its memory is read */
const REST_MS = 1500
const END_MS = 10_000

export async function measureBeside(options: BesideOptions): Promise<Beside> {
  const { service, home, folder, plain, environment } = options
  const executable = await realpath(join(environment.HOME, '.local', 'share', service, service))
  const configPath = join(environment.HOME, '.config', service, 'config.json')
  const { listen } = JSON.parse(await readFile(configPath, 'utf8')) as { listen: { host: string; port: number } }
  const { environment: names = OWN_NAMES, healthPath = '/' } = JSON.parse(
    await readFile(join(folder, 'baton.config.json'), 'utf8'),
  ) as { environment?: Record<string, string>; healthPath?: string }
  const state = join(environment.HOME, '.local', 'state', service)
  const copy = join(home, 'beside')
  await cp(state, copy, { recursive: true, filter: (path) => path !== join(state, 'update') })
  const port = await freePort()
  const given = { port: String(port), host: listen.host, stateDirectory: copy }
  const own = Object.fromEntries(Object.entries(names).map(([name, text]) => [name, filled(text, given)]))
  const node = await provideNode()
  const plainly = { command: [node, join(folder, plain)], cwd: copy, env: { ...environment, ...own }, port }
  const release = { command: [executable, 'serve', '--config', configPath], cwd: state, env: environment }

  const starts: Started[][] = [[], []]
  for (let count = 0; count < STARTS; count++) {
    starts[0]?.push(await startOnce({ ...release, port: listen.port }, healthPath))
    starts[1]?.push(await startOnce(plainly, healthPath))
  }
  const [ours = [], theirs = []] = starts
  const pair = (key: keyof Started): Pair => [
    median(ours.map((one) => one[key])),
    median(theirs.map((one) => one[key])),
  ]
  return { startMs: pair('ms'), memoryBytes: pair('bytes'), diskBytes: await diskBytes(executable, node) }
}

const OWN_NAMES = { PORT: '{port}', HOST: '{host}', STATE_DIRECTORY: '{stateDirectory}', NODE_ENV: 'production' }

function filled(text: string, values: Readonly<Record<string, string>>): string {
  return text.replace(/\{(\w+)\}/g, (all, name: string) => values[name] ?? all)
}

interface Started {
  ms: number
  bytes: number
}

interface Start {
  command: readonly string[]
  cwd: string
  env: NodeJS.ProcessEnv
  port: number
}

async function startOnce({ command: [file = '', ...args], cwd, env, port }: Start, path: string): Promise<Started> {
  const from = performance.now()
  const child = spawn(file, args, { cwd, stdio: 'ignore', env: { ...process.env, ...env } })
  const gone = once(child, 'exit')
  try {
    // any answer counts: it serves
    const answers = () => fetch(`http://127.0.0.1:${port}${path}`, { redirect: 'manual' }).then(Boolean, () => false)
    while (!(await answers())) {
      if (child.exitCode !== null) throw new Error(`${file}: ended with ${child.exitCode}`)
      if (performance.now() - from > START_MS) throw new Error(`${file}: expected an answer within ${START_MS} ms`)
      await sleep(2)
    }
    const ms = Math.round(performance.now() - from)
    await sleep(REST_MS)
    const status = await readFile(`/proc/${child.pid}/status`, 'utf8')
    return { ms, bytes: Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024 }
  } finally {
    child.kill('SIGTERM')
    const late = setTimeout(() => child.kill('SIGKILL'), END_MS)
    await gone
    clearTimeout(late)
  }
}

/** What a host has of one release, and what it would have of Node and the same folder without the package. */
async function diskBytes(executable: string, node: string): Promise<Pair> {
  const around = join(dirname(executable), `.${executable.slice(dirname(executable).length + 1)}`)
  const [name = ''] = (await readdir(around)).filter((one) => /^[0-9a-f]{16}$/.test(one))
  const [packed = 0, folder = 0, plain = 0] = await Promise.all([executable, join(around, name), node].map(bytesOf))
  return [packed + folder, plain + folder]
}

async function bytesOf(path: string): Promise<number> {
  const all = [path, ...(await readdir(path, { recursive: true }).catch(() => [])).map((name) => join(path, name))]
  let bytes = 0
  for (const one of all) {
    const found = await lstat(one)
    if (found.isFile()) bytes += found.size
  }
  return bytes
}

function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN
}
