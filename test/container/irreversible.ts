// A release with no way back that a person has allowed, and that dies in its probation: by the command and its switcher, plain, in a compose
// project and behind a holder. The old one starts on the data of before, whoever is killed meanwhile. What is told of it, and
// `--restore-state`, is in rehearsal.ts.

import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { run } from '../../deploy/lib/shell.ts'
import type { EndEvent } from '../../deploy/container/report.ts'
import { equal, is, match, ok } from '../assert.ts'
import { engineGate } from '../lab/engine-gate.ts'
import { labFolder, ofCompose, openLab } from '../lab/docker.ts'
import { buildLedgers, REQUESTS } from '../lab/ledger.ts'
import { MIGRATIONS } from '../lab/migrations.ts'
import { suite } from '../suite.ts'
import { command, range } from './cutting.ts'
import { BORROWS } from './held-service.ts'
import { scriptImages } from './images.ts'
import { healthy, statusIn, until } from './probe.ts'

const { skip, engine, registry, close } = await openLab()
const test = suite('container irreversible', { timeoutMs: 300_000, skip })
const STATE = '/var/lib/ledger'
let repository = ''
let schema = 0

test.before(async () => {
  repository = `${registry.host}/ledger`
  const dist = join(labFolder(), 'dist')
  const tags = ['v1.0.0', 'v1.1.0']
  await buildLedgers(dist, tags, { service: 'ledger', rehearse: { requests: REQUESTS } })
  await scriptImages(engine, registry, { dist, repository, tags, holder: true })
})
test.after(close)

/** more than there are, there and back */
const CHANGES_MAX = 24
const AT_ONCE = 4

/** Starts v1.0.0; resolves to its container's name. */
const KINDS: Record<string, (name: string) => Promise<string>> = {
  async plain(name) {
    await engine.docker('run', '-d', ...options(name), `${repository}:v1.0.0`)
    return name
  },
  async 'of compose'(name) {
    const folder = join(labFolder(), name)
    await mkdir(folder)
    await writeFile(join(folder, '.env'), 'TAG=v1.0.0\n')
    const file = `services:\n  app:\n    image: ${repository}:\${TAG}\n    restart: always\n    volumes: ['rows:${STATE}']\nvolumes:\n  rows: {}\n`
    await writeFile(join(folder, 'compose.yaml'), file)
    await run(['docker-compose', 'up', '-d'], { cwd: folder, env: engine.environment })
    return ofCompose(name, 'app')
  },
  async 'behind a holder'(name) {
    await engine.docker('pull', '-q', `${repository}:holder`)
    const door = ['--name', `${name}-door`, '--restart', 'always', '-v', `${name}-hold:/run/hold`]
    await engine.docker('run', '-d', ...door, `${repository}:holder`, '8080')
    const held = ['-v', `${name}-hold:/run/hold:ro`, ...BORROWS]
    await engine.docker('run', '-d', ...options(name), ...held, `${repository}:v1.0.0`)
    return name
  },
}

for (const [kind, start] of Object.entries(KINDS))
  test(`${kind}: the old one starts on the data of before, and what the new one left lies aside`, async () => {
    const service = await begun(await start(`of-${kind.replaceAll(' ', '-')}`))
    const { code, out } = await deployed(engine.socketPath, service.name).ended
    equal(code, 8, out)
    await isBack(service, endIn(out), out)
    await gone(service.name)
  })

for (const kind of Object.keys(KINDS))
  test(`${kind}: kill -9 of what does the switch, before each of its changes: the next one finishes, and the data are those of before`, async () => {
    const seen: string[] = []
    for (let n = 1; n <= CHANGES_MAX && !seen.includes('over'); n++) {
      const { service, gate, deployment, isOver, isBegun } = await heldAt(kind, 'k', n)
      if (isBegun) {
        gate.open()
        process.kill((await engine.inspect(`${service.name}-baton-switch`)).State.Pid, 'SIGKILL')
      } else gate.release() // it is about to be made
      if (!isOver) seen.push(isBegun ? (gate.changes[n - 1] ?? '') : 'nothing')
      const { code, out } = await deployment.ended
      ok(code === 8, `${n} (${gate.changes.join(', ')}): ${out}`)
      await isBack(service, endIn(out), out)
      await gate.close()
      await gone(service.name)
      if (isOver) seen.push('over')
    }
    process.stdout.write(`  ${kind}: killed before ${seen.join(', ')}\n`)
    ok(seen.filter((what) => what === 'start').length >= 2 && seen.includes('over'), seen.join(', '))
  })

for (const kind of Object.keys(KINDS))
  test(`${kind}: the power gone before each change of the switch, the command with it: the old one serves on the data of before`, async () => {
    const seen: string[] = []
    for (let n = 1; n <= CHANGES_MAX && !seen.includes('over'); n += AT_ONCE) {
      const all = await Promise.all(range(n, n + AT_ONCE - 1).map((at) => heldAt(kind, 'c', at)))
      for (const { deployment, isOver } of all) if (!isOver) deployment.child.kill('SIGKILL')
      await engine.crash()
      for (const { gate } of all) gate.open()
      await engine.start()
      for (const { service, gate, at, isOver, isBegun } of all) {
        const what = isOver ? 'over' : isBegun ? (gate.changes[at - 1] ?? '') : 'nothing'
        const said = `${service.name}, cut before ${what} (${gate.changes.join(', ')})`
        if (isBegun) await until(`${said}: what does the switch is done`, () => isRetired(service))
        const status = await statusIn(engine, service.name)
        await isBack(service, isBegun || isOver ? status : null, said)
        seen.push(what)
        await gate.close()
        await gone(service.name)
      }
    }
    process.stdout.write(`  ${kind}: cut before ${seen.join(', ')}\n`)
    ok(seen.filter((what) => what === 'start').length >= 2 && seen.includes('over'), seen.join(', '))
  })

test('plain: kill -9 of the old one while it takes its data again: the engine starts it once more, and it goes on', async () => {
  for (const ms of [0, 30, 60, 90, 120, 180, 250]) {
    const service = await begunAs('plain', `e${ms}`)
    const { Id, State } = await engine.inspect(service.name)
    const deployment = deployed(engine.socketPath, service.name)
    await until('its end', async () => !(await engine.inspect(Id)).State.Running)
    let again = 0
    await until('its start', async () => {
      const { State: now } = await engine.inspect(Id)
      again = now.Pid
      return now.Running && now.StartedAt !== State.StartedAt
    })
    await sleep(ms)
    try {
      if (again > 1) process.kill(again, 'SIGKILL')
    } catch {
      // it has ended
    }
    const { out } = await deployment.ended
    await healthy(engine, service.name)
    await isBack(service, endIn(out), out)
    await gone(service.name)
  }
})

test.run()

// ---- parts

interface Service {
  name: string
  /** of the old container */
  id: string
  /** of the volume, on the host */
  place: string
}

function options(name: string): string[] {
  const rare = ['--restart', 'always', '--health-interval', '20s']
  return ['--name', name, ...rare, '-v', `${name}-rows:${STATE}`]
}

/** A healthy service with a row of its own, whose next release renames a column and dies. */
async function begun(name: string): Promise<Service> {
  await healthy(engine, name)
  const { Id: id, Mounts } = await engine.inspect(name)
  const place = Mounts.find(({ Destination }: { Destination: string }) => Destination === STATE).Source as string
  const text = (MIGRATIONS['renamed and dies']?.text ?? '').replaceAll("'", "''")
  const database = new DatabaseSync(join(place, 'ledger.db'), { timeout: 5000 })
  database.exec(`INSERT INTO authors VALUES (1, 'ada'), (99, '${text}'); INSERT INTO notes VALUES (1, 1, 'mine');
    PRAGMA user_version = ${++schema}`)
  database.close()
  return { name, id, place }
}

async function begunAs(kind: string, name: string): Promise<Service> {
  return await begun(await (KINDS[kind] as (name: string) => Promise<string>)(name))
}

/** A deployment that is held before its change number `at`, by what does the switch if that `isBegun`; `isOver`: it has ended before. */
async function heldAt(kind: string, prefix: string, at: number) {
  const service = await begunAs(kind, `${prefix}-${kind[0]}${at}`)
  const gate = await engineGate(engine.socketPath, join(labFolder(), `${prefix}-${kind[0]}${at}.sock`), at, 'rename')
  const deployment = deployed(gate.socketPath, service.name)
  const isOver = await Promise.race([gate.held.then(() => false), deployment.ended.then(() => true)])
  const switcher = await engine.inspect(`${service.name}-baton-switch`).catch(() => null)
  return { service, gate, deployment, at, isOver, isBegun: !isOver && switcher?.State.Running === true }
}

function deployed(socketPath: string, name: string) {
  return command(socketPath, name, 'v1.1.0', ['--allow-irreversible', '--probation', '20s'])
}

async function isRetired({ name }: Service): Promise<boolean> {
  const { State, HostConfig } = await engine.inspect(`${name}-baton-switch`)
  return State.Running === false && HostConfig.RestartPolicy.Name === 'no'
}

type Told = Pick<EndEvent, 'stateMoved'>

/** What the command said last. */
function endIn(out: string): Told {
  const last = out
    .trim()
    .split('\n')
    .findLast((line) => line.startsWith('{'))
  return JSON.parse(last ?? '{}') as EndEvent
}

/** The old container serves, alone, on its own data; those of the new one are told, and lie aside. `told` null: it has never begun. */
async function isBack({ name, id, place }: Service, told: Told | null, said: string): Promise<void> {
  await healthy(engine, name)
  const now = await engine.inspect(name)
  equal([now.Id, now.HostConfig.RestartPolicy.Name], [id, 'always'], said)
  const beside = (await engine.names()).filter((one) => one.startsWith(`${name}-baton-`))
  for (const one of beside) ok(!(await engine.inspect(one)).State.Running || one.endsWith('-switch'), one)
  const read = (path: string, query: string) => {
    const database = new DatabaseSync(path)
    try {
      return Object.values(database.prepare(query).get() ?? {})[0]
    } finally {
      database.close()
    }
  }
  is(read(join(place, 'ledger.db'), 'SELECT text FROM notes WHERE id = 1'), 'mine')
  if (told === null) return
  const { aside = '', rows } = told.stateMoved ?? {}
  match(aside, /\/update\/aside\/ledger\.db\.v1\.1\.0\.[^/]+$/, said)
  is(rows, 0)
  is(read(aside, 'SELECT body FROM notes WHERE id = 1'), 'mine')
}

async function gone(name: string): Promise<void> {
  const all = (await engine.names()).filter((one) => one === name || one.startsWith(`${name}-`))
  await engine.docker('rm', '-f', '-v', ...all)
  await engine.docker('network', 'prune', '-f') // an engine has addresses for some thirty, and each project makes one
}
