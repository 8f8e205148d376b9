// Stub hosts: folders on this machine that hold only a host's answers. The real deploy-fleet.sh, Ansible and playbook move them.
// For tests of the decisions about a fleet, and of the controller's speed.

import { execFile, spawn, type ChildProcess } from 'node:child_process'
import { existsSync } from 'node:fs'
import { copyFile, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

/** What plugins/callback/report.py says of a host. */
export interface Row {
  host: string
  wave: number | null
  from: string | null
  to: string | null
  outcome: string
  ms: number | null
  why: string | null
  exit: number
}

export interface HostResult {
  event: 'result'
  outcome: string
  release: string
  exit: number
  why: string | null
  counts: Record<string, number>
  look: string[]
  hosts: Row[]
}

export interface Plan {
  event: 'plan'
  release: string
  stop: { why: string; exit: number } | null
  hosts: Row[]
}

export type FleetEvent =
  | { event: 'seen'; host: string; to: string | null; byItself?: string | null; refused: unknown; outcome?: string }
  | Plan
  | { event: 'wave'; wave: number; step: 'begin' | 'soak' | 'good'; hosts: string[] }
  | ({ event: 'host' | 'back' } & Row)
  | { event: 'stop'; why: string; exit: number; wave: number; hosts: string[] }
  | HostResult

export interface Moved {
  code: number
  stdout: string
  stderr: string
  result: HostResult | null
  events: FleetEvent[]
  rows: Record<string, Row>
}

export interface StubFleet extends AsyncDisposable {
  folder: string
  report: string
  inventory: string
  names: string[]
  /** sets a host's answer: writes a file that test/fixtures/stub-host.sh reads */
  set(host: string, file: string, text: string): Promise<void>
  get(host: string, file: string): Promise<string>
  /** the commands that ran on a host, such as `upgrade v1.1.0` */
  done(host: string): Promise<string[]>
  running(): Promise<string[]>
  start(...args: string[]): { child: ChildProcess; done: Promise<Moved> }
  move(...args: string[]): Promise<Moved>
  /** the report's events so far */
  events(): Promise<FleetEvent[]>
}

const PROJECT = join(import.meta.dirname, '../..')
const FLEET = join(PROJECT, 'deploy/fleet')
const STUB = join(PROJECT, 'test/fixtures/stub-host.sh')
const SCRIPT = join(PROJECT, 'deploy/deploy-fleet.sh')

/** Why this machine can have no stub fleet, or null. For `suite(name, { skip })`. */
export const noAnsible: string | null = existsSync('/usr/bin/ansible-playbook') ? null : 'needs Ansible'

export async function makeStubFleet(count: number, extra: Record<string, unknown> = {}): Promise<StubFleet> {
  const folder = await mkdtemp(join(tmpdir(), 'baton-stubs-'))
  const names = Array.from({ length: count }, (_, i) => `h${i + 1}`)
  const inventory = join(folder, 'hosts.json')
  const report = join(folder, 'report.jsonl')
  const hosts: Record<string, Record<string, unknown>> = {}
  for (const name of names) {
    await mkdir(join(folder, name))
    await copyFile(STUB, join(folder, name, 'beacon'))
    await writeFile(join(folder, name, 'running'), 'v1.0.0\n')
    hosts[name] = { fleet_command: join(folder, name, 'beacon') }
  }
  await writeFile(inventory, JSON.stringify({ all: { vars: { ansible_connection: 'local', ...extra }, hosts } }))
  const text = (host: string, file: string) => readFile(join(folder, host, file), 'utf8').catch(() => '')
  const start: StubFleet['start'] = (...args) => {
    const named = args.includes('-i') ? [] : ['-i', inventory]
    const child = spawn(SCRIPT, [...named, '--report', report, '--json', ...args], {
      cwd: folder,
      stdio: ['ignore', 'pipe', 'pipe'],
      detached: true,
    })
    return { child, done: outcomeOf(child) }
  }
  return {
    folder,
    report,
    inventory,
    names,
    set: (host, file, value) => writeFile(join(folder, host, file), value),
    get: async (host, file) => (await text(host, file)).trim(),
    done: async (host) =>
      (await text(host, 'log'))
        .split('\n')
        .filter(Boolean)
        .map((line) => `${line.split(' ', 1)[0] ?? ''} ${/v\d\S+/.exec(line)?.[0] ?? ''}`),
    running: () => Promise.all(names.map(async (name) => (await text(name, 'running')).trim())),
    start,
    move: (...args) => start(...args).done,
    events: async () => linesOf(await readFile(report, 'utf8').catch(() => '')),
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true, maxRetries: 5 }),
  }
}

/** Waits for the end of a run with `--json`; resolves to its output, events and exit code. */
export function outcomeOf(child: ChildProcess): Promise<Moved> {
  const output = { stdout: '', stderr: '' }
  for (const stream of ['stdout', 'stderr'] as const) {
    child[stream]?.setEncoding('utf8').on('data', (text: string) => (output[stream] += text))
  }
  return new Promise((resolve, reject) => {
    child.on('error', reject)
    child.on('close', (code) => {
      const events = linesOf(output.stdout)
      const result = events.findLast((event): event is HostResult => event.event === 'result') ?? null
      const rows = Object.fromEntries((result?.hosts ?? []).map((row) => [row.host, row]))
      resolve({ code: code ?? 255, ...output, result, events, rows })
    })
  })
}

/** Every whole line of JSON. */
export function linesOf(text: string): FleetEvent[] {
  return text.split('\n').flatMap((line) => {
    try {
      return [JSON.parse(line) as FleetEvent]
    } catch {
      return [] // cut off: its writer was killed
    }
  })
}

/** What the collection's own Python makes of `given`, without Ansible: an expression with the names of `from`'s module. */
export async function python(from: 'answers' | 'judge', expression: string, given: unknown): Promise<unknown> {
  const folder = await mkdtemp(join(tmpdir(), 'baton-python-'))
  try {
    await mkdir(join(folder, 'ansible_collections/baton'), { recursive: true })
    await symlink(FLEET, join(folder, 'ansible_collections/baton/fleet'))
    const program = `
import json, sys
from ansible_collections.baton.fleet.plugins.module_utils.${from} import *
given = json.load(sys.stdin)
print(json.dumps(${expression}))`
    const env = { ...process.env, PYTHONPATH: folder, PYTHONDONTWRITEBYTECODE: '1' }
    const running = promisify(execFile)('python3', ['-c', program], { env })
    running.child.stdin?.end(JSON.stringify(given))
    return JSON.parse((await running).stdout) as unknown
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/** What the collection makes of one call of a host's command, through the script that is sent to it. */
export async function heard(
  fleet: StubFleet,
  host: string,
  verb: string,
  expression: string,
): Promise<Record<string, unknown>> {
  const script = join(FLEET, 'plugins/modules/release.sh')
  const words = [script, join(fleet.folder, host, 'beacon'), verb]
  // what was said before it was cut off
  const { stdout } = await promisify(execFile)('sh', words).catch((error: Error & { stdout: string }) => error)
  const calls = 'calls := parse(given["said"], "", 0, [given["verb"]])'
  return (await python('answers', `(${calls}, ${expression})[-1]`, { said: stdout, verb })) as Record<string, unknown>
}
