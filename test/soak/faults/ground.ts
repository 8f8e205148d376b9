// Where a handover is hit: a service with a load on it, whose processes can be found, hit and started again, and what is left
// of it afterwards. Without a supervisor, under the supervision of `--no-service`, and (systemd.ts) on a host with systemd.

import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { fileURLToPath } from 'node:url'
import type { JournalState } from '../../../agent/disk/journal.ts'
import type { HandoverStep } from '../../../agent/handover/moments.ts'
import { startTimeOf } from '../../../agent/sockets/process.ts'
import { socketTable } from '../../../deploy/lib/socket-table.ts'
import { FAULTS_FILE, type StepFault } from '../../fixtures/at-steps.ts'
import { besides, journalOf, processesBelow, sha256Of, until } from '../../fixtures/evidence.ts'
import { ask, type Install, install } from '../../fixtures/install.ts'
import { publishTo, scriptRelease, type TestRelease, unpack } from '../../fixtures/releases.ts'
import { descriptorsOf } from '../subject.ts'

export const TAGS = ['v1.0.0', 'v1.1.0'] as const
export const HANG_MS = 800
export const UPDATE = { probation: '400ms', drainTimeout: '2s', hangTimeout: `${HANG_MS}ms` }

export type GroundName = 'alone' | 'supervised' | 'systemd'
export type Signal = StepFault['signal'] | 'SIGCONT'

/** What is there when all is quiet again. */
export interface Evidence {
  /** tag of the file, null where it is none of ours */
  executable: string | null
  backup: string | null
  /** names beside the executable that nobody asked for, and what is left in the state and in the temporary directory */
  leftovers: string[]
  journal: JournalState
  processes: number
  descriptors: number
  integrity: string
}

export interface Ground extends AsyncDisposable {
  name: GroundName
  port: number
  /** put before the command of a load */
  prefix: string[]
  /** steps at which processes are hit; returns how many are still to come */
  arm(faults: StepFault[]): Promise<void>
  armed(): Promise<number>
  /** whether the process that was started then (`startTimeOf`) has come to that step */
  took(born: string | null, step: HandoverStep): Promise<boolean>
  api(method: string, path: string, body?: unknown): Promise<{ status: number; body: unknown }>
  /** Resolves when a new connection was answered well. */
  answers(): Promise<void>
  /** ids of the processes that serve or are about to, the oldest first */
  pids(): number[]
  hit(pid: number, signal: Signal): void
  /** Starts it again where nobody else does. */
  revive(): Promise<void>
  /** Whether somebody else starts it again. */
  isSupervised: boolean
  /** `expected`: how many descriptors are right; 0 where that is not known yet */
  evidence(pid: number, expected: number): Promise<Evidence>
  /** texts of all rows, with repetitions */
  rows(): Promise<string[]>
  output(): Promise<string>
}

const SUPERVISED = fileURLToPath(new URL('../../fixtures/supervised.ts', import.meta.url))

let built: Promise<TestRelease[]> | null = null

export async function openGround(name: 'alone' | 'supervised'): Promise<Ground> {
  const [old, next] = await (built ??= Promise.all(TAGS.map((tag) => scriptRelease(tag))))
  if (old === undefined || next === undefined) throw new Error('no releases')
  const folder = await mkdtemp(join(tmpdir(), 'baton-faults-'))
  const feed = await publishTo(join(folder, 'feed'), [old, next])
  const home = await install({ release: old, feed, update: UPDATE })
  await unpack(next, home.backup)
  const tagOf = new Map([old, next].map(({ sha256, tag }) => [sha256, tag]))
  const faults = join(folder, 'faults.json')
  const port = home.port ?? 0
  const environment = { [FAULTS_FILE]: faults, TMPDIR: join(home.home, 'tmp') }
  let supervision: ChildProcess | null = null
  const revive = async (): Promise<void> => {
    if (name === 'alone') {
      // a process that ends loses its command line before its sockets
      const isHeld = async () => (await socketTable('tcp')).some((one) => one.isListening && one.port === port)
      await until('its sockets to be closed, or somebody', async () => home.pids().length > 0 || !(await isHeld()))
      if (home.pids().length === 0) await home.start(environment)
      return
    }
    if (supervision !== null && supervision.exitCode === null && supervision.signalCode === null) return
    supervision = await supervise(home, environment)
  }
  await revive()
  return {
    name,
    port,
    prefix: [],
    isSupervised: name === 'supervised',
    arm: (list) => writeFile(faults, JSON.stringify(list)),
    armed: async () => (JSON.parse(await readFile(faults, 'utf8').catch(() => '[]')) as StepFault[]).length,
    took: (born, step) => hasTaken(faults, born, step),
    api: home.api,
    answers: async () => {
      const { status } = await ask(port, 'GET', '/version', null)
      if (status !== 200) throw new Error(`status ${status}`)
    },
    pids: () => inOrderOfBirth(home.pids()),
    hit: (pid, signal) => void process.kill(pid, signal),
    revive,
    evidence: async (pid, expected) => ({
      executable: tagOf.get((await sha256Of(home.executable)) ?? '') ?? null,
      backup: tagOf.get((await sha256Of(home.backup)) ?? '') ?? null,
      leftovers: await leftoversOf(home),
      journal: await journalOf(home),
      processes: processesBelow(home.home).filter((one) => one !== supervision?.pid).length,
      descriptors: await fewestDescriptors(pid, port, expected),
      integrity: withDatabase(home.database, (all) => all('PRAGMA integrity_check').map(String).join()),
    }),
    rows: () => Promise.resolve(withDatabase(home.database, (all) => all('SELECT message FROM logs').map(String))),
    output: home.output,
    async [Symbol.asyncDispose]() {
      if (supervision !== null && supervision.exitCode === null) {
        const gone = new Promise((resolve) => supervision?.once('exit', resolve))
        supervision.kill('SIGTERM')
        await Promise.race([gone, new Promise((resolve) => setTimeout(resolve, 10_000))])
        supervision.kill('SIGKILL')
      }
      await home[Symbol.asyncDispose]()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

/** The real supervision of `--no-service`, in a process of its own. */
async function supervise(home: Install, environment: Record<string, string>): Promise<ChildProcess> {
  const child = spawn(process.execPath, [...process.execArgv, SUPERVISED, home.receiptPath], {
    stdio: ['ignore', 'ignore', 'inherit'],
    env: { ...process.env, ...environment },
  })
  await until('the supervised service', () =>
    ask(home.port ?? 0, 'GET', '/version', null).then(
      ({ status }) => status === 200,
      () => false,
    ),
  )
  return child
}

async function leftoversOf(home: Install): Promise<string[]> {
  const expected = new Set(['beacon', 'beacon.backup', 'receipt.json'])
  const beside = (await besides(home)).filter((name) => !expected.has(name))
  const state = (await readdir(home.stateDirectory, { recursive: true })).filter((name) =>
    /\.tmp$|\.partial$|lock\.json$/.test(name),
  )
  const temporary = (await readdir(join(home.home, 'tmp'))).filter((name) => name.startsWith('baton'))
  return [...beside, ...state, ...temporary]
}

/** What comes and goes is not counted, what leaks stays. A look reads every connection of the machine: no more of them than it takes. */
async function fewestDescriptors(pid: number, port: number, expected: number): Promise<number> {
  let fewest = Infinity
  for (let look = 0; look < 40 && fewest > expected; look++) {
    fewest = Math.min(fewest, descriptorsOf(pid, port))
    await new Promise((resolve) => setTimeout(resolve, 3))
  }
  return fewest
}

export function withDatabase<T>(path: string, use: (all: (sql: string) => unknown[]) => T): T {
  const database = new DatabaseSync(path, { readOnly: true })
  try {
    return use((sql) =>
      database
        .prepare(sql)
        .all()
        .map((row) => Object.values(row)[0]),
    )
  } finally {
    database.close()
  }
}

/** As at-steps.ts has noted it beside the file of the faults. */
export async function hasTaken(faults: string, born: string | null, step: HandoverStep): Promise<boolean> {
  const taken = await readFile(`${faults}.taken`, 'utf8').catch(() => '')
  return taken.split('\n').includes(`${born} ${step}`)
}

/** The oldest first. */
export function inOrderOfBirth(pids: number[]): number[] {
  const born = (pid: number) => Number(startTimeOf(pid) ?? Infinity)
  return pids.toSorted((a, b) => born(a) - born(b) || a - b)
}
