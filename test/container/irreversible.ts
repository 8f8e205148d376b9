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
import { command } from './cutting.ts'
import { BORROWS } from './held-service.ts'
import { scriptImages } from './images.ts'
import { healthy, until } from './probe.ts'

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
  await scriptImages(engine, registry, { dist, repository, tags })
})
test.after(close)

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
    await isBack(service, out)
    await gone(service.name)
  })

/** at most, after the trial's container is started: its removal, the tag that keeps the image, the switcher, and the switch there and back */
const CHANGES = { plain: 20, 'behind a holder': 20 }

for (const kind of ['plain', 'behind a holder'] as const)
  test(`${kind}: kill -9 of what does the switch, before each of its changes: the next one finishes, and the data are those of before`, async () => {
    const seen: string[] = []
    for (let n = 5; n <= CHANGES[kind]; n++) {
      const service = await begun(await (KINDS[kind] as (name: string) => Promise<string>)(`${kind[0]}${n}`))
      const gate = await engineGate(engine.socketPath, join(labFolder(), `${kind[0]}${n}.sock`), n)
      const deployment = deployed(gate.socketPath, service.name)
      const over = deployment.ended.then(() => true)
      const isOver = await Promise.race([gate.held.then(() => false), over])
      if (!isOver) {
        const { State } = await engine.inspect(`${service.name}-baton-switch`).catch(() => ({ State: {} }))
        if (State.Running === true) gate.open()
        else gate.release() // it is about to be made
        if (State.Running === true) process.kill(State.Pid, 'SIGKILL')
        seen.push(State.Running === true ? (gate.changes[n - 1] ?? '') : 'nothing')
      }
      const { code, out } = await deployment.ended
      ok(code === 8, `${n} (${gate.changes.join(', ')}): ${out}`)
      await isBack(service, out)
      await gate.close()
      await gone(service.name)
      if (isOver) seen.push('over')
      if (isOver) break
    }
    process.stdout.write(`  ${kind}: killed before ${seen.join(', ')}\n`)
    ok(seen.filter((what) => what === 'start').length >= 2 && seen.includes('over'), seen.join(', '))
  })

test('plain: kill -9 of the old one while it takes its data again: the engine starts it once more, and it goes on', async () => {
  for (const ms of [0, 30, 60, 90, 120, 180, 250]) {
    const service = await begun(await (KINDS['plain'] as (name: string) => Promise<string>)(`e${ms}`))
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
    await isBack(service, out)
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

function deployed(socketPath: string, name: string) {
  return command(socketPath, name, 'v1.1.0', ['--allow-irreversible', '--probation', '20s'])
}

/** The old container serves, alone, on its own data; those of the new one are told, and lie aside. */
async function isBack({ name, id, place }: Service, out: string): Promise<void> {
  await healthy(engine, name)
  const now = await engine.inspect(name)
  equal([now.Id, now.HostConfig.RestartPolicy.Name], [id, 'always'], out)
  const beside = (await engine.names()).filter((one) => one.startsWith(`${name}-baton-`))
  for (const one of beside) ok(!(await engine.inspect(one)).State.Running || one.endsWith('-switch'), one)
  const end = JSON.parse(
    out
      .trim()
      .split('\n')
      .findLast((line) => line.startsWith('{')) ?? '{}',
  ) as EndEvent
  const { aside = '', rows } = end.stateMoved ?? {}
  match(aside, /\/update\/aside\/ledger\.db\.v1\.1\.0\.[^/]+$/, out)
  is(rows, 0)
  const read = (path: string, query: string) => {
    const database = new DatabaseSync(path)
    try {
      return Object.values(database.prepare(query).get() ?? {})[0]
    } finally {
      database.close()
    }
  }
  is(read(join(place, 'ledger.db'), 'SELECT text FROM notes WHERE id = 1'), 'mine')
  is(read(aside, 'SELECT body FROM notes WHERE id = 1'), 'mine')
}

async function gone(name: string): Promise<void> {
  const all = (await engine.names()).filter((one) => one === name || one.startsWith(`${name}-`))
  await engine.docker('rm', '-f', '-v', ...all)
}
