// A move behind a holder, a move out again, and an update behind one, each cut: the container that does the switch killed with -9, or
// the power gone with the command, before a change of the engine. The service answers again without anybody's help, the work is
// finished, one container serves, and every acknowledged row is there. In CI, hold-waits.ts kills the switcher while both live, and cut.ts
// cuts the power without a holder.

import { suite } from '../suite.ts'
import { equal, ok } from '../assert.ts'
import { openLab } from '../lab/docker.ts'
import { command, heldBefore, NOT_TRIED, range } from './cutting.ts'
import { answers, cable, ordinaryService, uncable } from './held-service.ts'
import { serviceImages } from './images.ts'
import { healthy, until } from './probe.ts'

const { skip, engine, registry, close } = await openLab()
const test = suite('container hold cut short', { timeoutMs: 1_200_000, skip })
const [NAME, PORT] = ['cut', 8220]
/** what the switch changes in each: the holder's start or stop, policy and removal beside the container's; behind a holder, the new one waits */
const MOVES = {
  hold: ['rename', 'rename', 'stop', 'start', 'start', 'update', 'update', 'update', 'rename'],
  'v1.1.0': ['rename', 'rename', 'start', 'stop', 'update', 'update', 'rename'],
  'no-hold': ['rename', 'rename', 'stop', 'stop', 'start', 'update', 'remove', 'update', 'rename'],
  'v1.0.0': ['rename', 'rename', 'stop', 'start', 'update', 'update', 'rename'],
} as const
let address = ''
const rows: string[] = []

test.before(async () => {
  address = (await cable()).address
  const repository = await serviceImages(engine, registry)
  await ordinaryService(engine, { name: NAME, port: PORT, repository, address })
  // makes the image of the program, so that the switcher is quick below
  for (const release of ['hold', 'no-hold']) {
    const { code, out } = await command(engine.socketPath, NAME, release, NOT_TRIED).ended
    equal(code, 0, out)
  }
})

for (const way of ['kill -9 of the switcher', 'a power cut'])
  test(`${way} before a change of a move in, an update, and a move out: it is finished by itself`, async () => {
    const longest = Math.max(...Object.values(MOVES).map(({ length }) => length))
    for (const turn of range(1, longest))
      for (const [release, changes] of Object.entries(MOVES)) {
        const n = Math.min(turn, changes.length)
        await cut(way, release, n, changes)
        await standing(`${release}, cut before change ${n}`, release)
      }
  })

test.after(async () => {
  await uncable()
  await close()
})

test.run()

async function cut(way: string, release: string, n: number, changes: readonly string[]): Promise<void> {
  await write()
  // else the last change but one is the removal of what the move before has kept
  await engine.docker('rm', '-f', `${NAME}-baton-previous`).catch(() => null)
  const { gate, child, ended, said } = await heldBefore(engine, NAME, release, n)
  try {
    equal(gate.changes, changes.slice(0, n), `${release}, ${n}: ${said()}`)
    if (way === 'a power cut') {
      child.kill('SIGKILL')
      await engine.crash()
      gate.open()
      await engine.start()
    } else {
      const { State } = await engine.inspect(`${NAME}-baton-switch`)
      gate.open()
      process.kill(State.Pid, 'SIGKILL')
      const { code, out } = await ended
      equal(code, 0, out)
    }
    const began = performance.now()
    await until('an answer', () => answers(address, PORT))
    ok(performance.now() - began < 15_000, `${release}, ${n}: ${performance.now() - began} ms`)
    await until('the end', async () => {
      const { switcher, names } = await look()
      return !switcher && !names.some((name) => /-(successor|predecessor|reverting)$/.test(name))
    })
  } finally {
    await gate.close()
  }
}

async function look() {
  const names = (await engine.names()).filter((name) => name.startsWith(NAME))
  const switcher = names.includes(`${NAME}-baton-switch`)
    ? await engine.inspect(`${NAME}-baton-switch`).then(
        ({ State }) => State.Running || State.Restarting,
        () => false,
      )
    : false
  return { names, switcher: switcher as boolean }
}

/** One container serves, with a holder or without, and has all rows. */
async function standing(what: string, release: string): Promise<void> {
  await healthy(engine, NAME)
  await until(`${what}: an answer`, () => answers(address, PORT))
  const { names } = await look()
  const isHeld = release === 'hold' || release === 'v1.1.0'
  equal(names.includes(`${NAME}-holder`), isHeld, what)
  const { HostConfig, Config } = await engine.inspect(NAME)
  equal(HostConfig.RestartPolicy.Name, 'always', what)
  equal(Object.keys(HostConfig.PortBindings ?? {}).length, isHeld ? 0 : 1, what)
  if (release.startsWith('v')) equal(Config.Labels['org.opencontainers.image.version'], release, what)
  if (isHeld) equal((await engine.inspect(`${NAME}-holder`)).HostConfig.RestartPolicy.Name, 'always', what)
  const kept = await (await fetch(`http://${address}:${PORT}/api/logs`)).text()
  for (const row of rows.slice(-10)) ok(kept.includes(row), `${what}: ${row} is gone`)
}

async function write(): Promise<void> {
  const message = `row ${rows.length} of a cut`
  const headers = { 'content-type': 'application/json' }
  const body = JSON.stringify({ message })
  const answer = await fetch(`http://${address}:${PORT}/api/logs`, { method: 'POST', headers, body })
  equal(answer.status, 201)
  rows.push(message)
}
