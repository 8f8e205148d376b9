// @long @deadlineMs 900000
// Applications as people write them (test/lab/habits.ts) under systemd, which holds their sockets while no process of theirs lives. Each
// is updated, rolled back, given a broken release, and each of its processes is killed: at each step of a switch, and at any moment.

import { symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  ALONE_STEPS,
  HOLDER_STEPS,
  type HandoverStep,
  PREDECESSOR_STEPS,
  REVERT_STEPS,
  SUCCESSOR_STEPS,
} from '../agent/handover/moments.ts'
import { isDone, type Operation, type Status } from '../agent/words/state.ts'
import { run } from '../deploy/lib/shell.ts'
import { bundle } from '../deploy/make/bundle.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { parseProject } from '../deploy/make/project.ts'
import { equal, is, ok } from './assert.ts'
import { FAULTS_FILE } from './fixtures/at-steps.ts'
import { buildQuietly } from './fixtures/quiet-build.ts'
import { failing, type Habit, HABITS, type Kind, MANY } from './lab/habits.ts'
import { asOne, type Loads, spawnLoad } from './lab/load.ts'
import { bootWithFeed, type FeedHost, put } from './lab/managed.ts'
import { eventually, noHosts } from './lab/systemd.ts'
import { temporary } from './lab/temporary.ts'
import { isLong, suite } from './suite.ts'

const test = suite('systemd: habits', { skip: noHosts, timeoutMs: 450_000 })
const KINDS = ['stop-first', 'start-first'] as const
const [EXTRA, STEPS] = [5300, '/var/lib/beacon/steps']
const PROBATION_MS = 700
/** long enough to fall ill in it, a second and a half after it was well */
const [ILL_PROBATION_MS, ILL_AFTER_MS] = [4000, 2500]
const about = { service: 'beacon', kind: 'script', entry: 'server.js', healthPath: '/healthz' }
/** what a row of the table has by itself, in the long form; `MANY` has all of these at once */
const ROWS = [
  'tcp-port-used',
  'get-port',
  'joins a group',
  'answers 503 until then',
  'has called back',
  'asks itself when',
]
const CASES = [
  MANY,
  ...(isLong ? ROWS.flatMap((row) => HABITS.find(({ name }) => name.includes(row)) ?? []) : []),
].flatMap((habit) => KINDS.slice(0, isLong ? 2 : 1).map((kind) => ({ habit, kind })))
/** of which release number a case has v<number>.0.0 and v<number>.1.0, both good, and those of `BROKEN` */
const tagsOf = (at: number) => [0, 1, 2, 3, 4].map((minor) => `v${at + 1}.${minor}.0`) as Tags
type Tags = [first: string, second: string, broken: string, fallsIll: string, ends: string]
const same = (text: string) => text
const neverWell = MANY.broken ?? same
/** what becomes of `MANY` in its later releases */
const BROKEN = [
  neverWell,
  (text: string) => `${text}\nsetTimeout(() => (isWarm = false), ${ILL_AFTER_MS})`,
  (text: string) => `${neverWell(text)}\nsetTimeout(() => process.exit(0), 3000)`,
]

let host: FeedHost

test.before(async () => {
  host = await bootWithFeed(async (out) => {
    for (const [at, { habit, kind }] of CASES.entries()) await publish(out, tagsOf(at), habit, kind)
  })
  await host.ok('cp', process.execPath, '/usr/local/bin/node')
  const preload = await bundle({ entry: join(import.meta.dirname, 'fixtures/heeds-steps.ts'), define: {} })
  await put(host, '/usr/local/lib/heeds-steps.cjs', preload.toString())
  const variables = [`NODE_OPTIONS=--require=/usr/local/lib/heeds-steps.cjs`, `${FAULTS_FILE}=${STEPS}`]
  await put(host, '/etc/systemd/system/beacon.service.d/steps.conf', `[Service]\nEnvironment=${variables.join(' ')}\n`)
})
test.after(async () => await host.off())

for (const [at, { habit, kind }] of CASES.entries()) {
  const register = at === 0 ? test : test.long
  const [first, second, broken, fallsIll, ends] = tagsOf(at)
  register(`${kind}: an application that ${habit.name}: update, rollback, a broken release, and a kill`, async () => {
    const { operate, well } = await installed(habit, first)
    const started = await well(first)
    await using load = await loadOn()
    is((await operate('', { tag: second })).outcome, 'updated')
    const updated = await well(second, started)
    is((await operate('/rollback')).outcome, 'rolled_back')
    const back = await well(first, updated)
    equal(await load.stop(), { lost: 0, closed: 0, errors: {}, refused: 0 })
    is((await operate('', { tag: broken })).outcome, 'reverted')
    const reverted = await well(first)
    if (kind === 'start-first') is(reverted, back)
    is((await host.show('NRestarts'))['NRestarts'], '0')
    await using through = await loadOn()
    await host.ok('systemctl', 'kill', '--signal=KILL', '--kill-who=main', 'beacon')
    await well(first, reverted)
    is((await through.stop()).refused, 0)
    is((await host.show('NRestarts'))['NRestarts'], '1')
  })

  if (habit !== MANY) continue
  for (const [role, steps, isBroken] of stepsOf(kind)) {
    // start-first, one that never gets well has never served: nothing is taken back
    const bad = kind === 'start-first' ? fallsIll : broken
    test.long(
      `${kind}: \`kill -9\` of the ${role} at each step of ${isBroken ? 'a revert' : 'an update'}: it is there again, on its port`,
      async () => {
        const service = await installed(habit, first, bad === fallsIll && isBroken ? ILL_PROBATION_MS : PROBATION_MS)
        await service.well(first)
        for (const step of steps) {
          const from = (await host.status()).instance.version
          const to = isBroken ? bad : from === first ? second : first
          await host.ok('systemctl', 'reset-failed', 'beacon') // the start limit is for one that always dies
          const faults = `${STEPS}.${role}`
          await put(host, faults, JSON.stringify([{ step, signal: 'SIGKILL' }]))
          await host.ok('chown', 'beacon:beacon', faults)
          await using load = await loadOn()
          const ended = await service.operate('', { tag: to })
          const where = `${role} at \`${step}\`: ${ended.outcome}, ${ended.error?.message}`
          is((await host.ok('cat', faults)).trim(), '[]', `${where}: it did not happen`)
          if (isBroken) is(ended.outcome, 'reverted', where)
          await afterwards(service, ended, from, to, where)
          is((await load.stop()).refused, 0, where)
        }
      },
    )
  }
  test.long(
    `${kind}: a process of the unit is killed at any moment of a switch: it is there again, on its port`,
    async () => {
      const service = await installed(habit, first)
      await service.well(first)
      for (let kill = 0; kill < 12; kill++) {
        const from = (await host.status()).instance.version
        const to = kill % 4 === 3 ? broken : from === first ? second : first
        await host.ok('systemctl', 'reset-failed', 'beacon')
        const afterMs = Math.round(Math.random() * 3500)
        await using load = await loadOn()
        const ended = await service.operate('', { tag: to }, async () => {
          await sleep(afterMs)
          const pids = (await host.ok('cat', '/sys/fs/cgroup/system.slice/beacon.service/cgroup.procs'))
            .trim()
            .split('\n')
          await host.run(['kill', '-KILL', pids[Math.floor(Math.random() * pids.length)] ?? '0'])
        })
        const where = `after ${afterMs} ms: ${ended.outcome}, ${ended.error?.message}`
        await afterwards(service, ended, from, to, where)
        is((await load.stop()).refused, 0, where)
      }
    },
  )
  if (kind === 'start-first') continue
  test.long(
    `${kind}: a release on probation that nobody watches and that ends with 0 is put back at its second end`,
    async () => {
      const service = await installed(habit, first)
      await service.well(first)
      await host.ok('systemctl', 'reset-failed', 'beacon')
      const faults = `${STEPS}.holder`
      await put(host, faults, JSON.stringify([{ step: 'opened', signal: 'SIGKILL' }]))
      await host.ok('chown', 'beacon:beacon', faults)
      const ended = await service.operate('', { tag: ends })
      equal([(await host.ok('cat', faults)).trim(), ended.outcome], ['[]', 'reverted'], ended.error?.message)
      await service.well(first)
      is((await host.show('NRestarts'))['NRestarts'], '2')
    },
  )
}

test.run()

interface Service {
  /** Resolves to the operation once it has ended. `then`: done when it has begun */
  operate(path: string, body?: object, then?: () => Promise<void>): Promise<Operation>
  /** Resolves to the process that serves this release on the service's port, if it is another one than `not`. */
  well(tag: string, not?: number): Promise<number>
}

function stepsOf(kind: Kind): [role: 'app' | 'holder', steps: readonly HandoverStep[], isBroken: boolean][] {
  const at = HOLDER_STEPS.indexOf('reverting')
  if (kind === 'start-first')
    return [
      ['app', [...PREDECESSOR_STEPS, ...SUCCESSOR_STEPS], false],
      ['app', REVERT_STEPS, true],
    ]
  return [
    ['app', [...ALONE_STEPS, ...SUCCESSOR_STEPS], false],
    ['holder', HOLDER_STEPS.slice(0, at), false],
    ['holder', HOLDER_STEPS.slice(at), true],
  ]
}

/** It serves the release that the operation says, and nobody is refused. */
async function afterwards(service: Service, ended: Operation, from: string, to: string, where: string): Promise<void> {
  ok(isDone(ended.outcome) || ended.outcome === 'reverted' || ended.outcome === 'failed', where)
  await service.well(isDone(ended.outcome) ? to : from).catch((cause: unknown) => {
    throw new Error(where, { cause })
  })
  is((await host.show('ActiveState'))['ActiveState'], 'active', where)
}

/** A new install of this release. */
async function installed(habit: Habit, tag: string, probationMs = PROBATION_MS): Promise<Service> {
  await host.run(['beacon', 'uninstall', '--purge', '-y', '--confirm', 'beacon'])
  await host.install({ probation: `${probationMs}ms`, drainTimeout: '3s', quietTimeout: '500ms', ...habit.update }, tag)
  return {
    async operate(path, body = {}, then = async () => {}) {
      const begun = await host.ask('POST', path, body)
      is(begun.status, 202, begun.body)
      const { id } = JSON.parse(begun.body) as Operation
      await then()
      const look = async () => {
        const { operation } = JSON.parse((await host.ask('GET', '/status')).body) as Status
        return operation?.id === id && operation.outcome !== null ? operation : null
      }
      return await eventually('the outcome', look, 90_000)
    },
    async well(tag, not) {
      const look = async () => {
        const [by, pid] = (await host.ok('curl', '-sSf', '-m', '5', 'http://127.0.0.1:8080/')).split(' ')
        return by === tag && Number(pid) !== not ? Number(pid) : null
      }
      const pid = await eventually(`${tag} to answer`, look, 30_000)
      const program = [process.execPath, join(import.meta.dirname, 'fixtures/habit-serves.ts'), habit.name]
      const [enter = '', ...words] = await host.network()
      if (habit.serves !== undefined)
        await run([enter, ...words, ...program, JSON.stringify({ pid, tag, extra: EXTRA })])
      return pid
    },
  }
}

/** A release for each tag that a case uses. They are scripts, which are small: a switch that is killed takes most of its time then. */
async function publish(out: string, tags: Tags, habit: Habit, kind: Kind): Promise<void> {
  await using made = await temporary('habit')
  await symlink(join(PROJECT, 'node_modules'), join(made.path, 'node_modules'))
  const config = { ...about, order: kind, ...habit.config }
  const project = parseProject(config, made.path)
  const text = habit.text(EXTRA)
  const broken = habit === MANY ? BROKEN.slice(0, isLong ? undefined : 1) : [habit.broken ?? failing]
  for (const [at, change] of [same, same, ...broken].entries()) {
    const [tag = '', given] = [tags[at], change(text)]
    await writeFile(join(made.path, 'server.js'), asFunction(given).replaceAll('TAG', tag))
    await buildQuietly({ project, out, tag })
  }
}

/** A script is CommonJS, which cannot wait at its top. */
function asFunction(text: string): string {
  const isImport = (line: string) => line.startsWith('import ')
  const lines = text.split('\n')
  const imports = [`import '${join(PROJECT, 'agent/adapters/auto.ts')}'`, ...lines.filter(isImport)]
  return [...imports, 'void (async () => {', ...lines.filter((line) => !isImport(line)), '})()'].join('\n')
}

/** Clients that open a connection for each request, and one that keeps its own, which a switch hands on. */
async function loadOn(): Promise<Loads> {
  const prefix = await host.network()
  const common = { port: 8080, thinkMs: [20, 60] as [number, number], hangMs: 20_000 }
  const loads = await Promise.all([
    spawnLoad({ ...common, mode: 'fresh', clients: 2 }, { prefix }),
    spawnLoad({ ...common, mode: 'keepalive', clients: 1, afterClose: 'reopen' }, { prefix }),
  ])
  await eventually('load', () => Promise.resolve(loads.every((load) => load.snapshot().ok > 5)))
  return asOne(loads)
}
