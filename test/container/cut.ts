// A deployment that is cut: the command or the container that does the switch killed with -9, the engine restarted, the power gone,
// at every change of the engine. One of the two serves again without anybody's help, and the data is there.

import { isLong, suite } from '../suite.ts'
import { equal, match, ok } from '../assert.ts'
import { openLab } from '../lab/docker.ts'
import { witnessed } from '../fixtures/deploy-container.ts'
import { command, cutting, range } from './cutting.ts'
import { deployIn, statusIn, until } from './probe.ts'

const { skip, engine, registry, close } = await openLab()
const test = suite('container cut short', { timeoutMs: 300_000, skip })
const { prepare, old, gone, runs, standing, leftovers, heldEverywhere, someAtOnce } = cutting(engine, registry)
/** of the switch: rename, rename, stop, start, policy, policy, rename */
const SWITCH = ['rename', 'rename', 'stop', 'start', 'update', 'update', 'rename']
/** of the way back after `start`: rename, rename, start, rename */
const BACK = ['rename', 'rename', 'start', 'rename']
/** what comes before the switch in an update with a second network: tag, create, connect, tag */
const BEFORE = 4

test.before(prepare)

test('whoever does the switch killed with -9 before any change: it is started again and finishes, by itself', async () => {
  const points = await heldEverywhere('killed', 'v1.1.0', isLong ? range(1, SWITCH.length) : [4])
  for (const { name, gate } of points) {
    gate.open()
    const { State } = await engine.inspect(`${name}-baton-switch`)
    process.kill(State.Pid, 'SIGKILL')
  }
  await someAtOnce(points, async ({ name, gate, deployment, n }) => {
    equal(gate.changes.slice(0, n), SWITCH.slice(0, n))
    const { code, out } = await deployment.ended
    equal(code, 0, `${name}: ${out}`)
    await runs(name, 'v1.1.0')
    equal(await leftovers(name), [`${name}-baton-previous`])
    await gate.close()
  })
})

test('the power gone before any change, the command with it: one of the two serves again, and the update is finished', async () => {
  const started = SWITCH.indexOf('start') + 1
  const points = await heldEverywhere('power', 'v1.1.0', isLong ? range(1, SWITCH.length) : [4])
  const backAt = isLong ? range(1, BACK.length) : [3]
  const back = await heldEverywhere(
    'return',
    'v1.2.1',
    backAt.map((n) => started + n),
  )
  for (const { deployment } of [...points, ...back]) deployment.child.kill('SIGKILL')
  await engine.crash()
  for (const { gate } of [...points, ...back]) gate.open()
  await engine.start()
  await someAtOnce([...points, ...back], async ({ name, n, gate }) => {
    const [version, kept] = name.startsWith('power') ? ['v1.1.0', 'previous'] : ['v1.0.0', 'failed']
    await until(`${name} (cut at ${n}) stands`, async () => (await standing(name)) === `${version} always ${kept}`)
    await runs(name, version)
    await gate.close()
  })
})

test('the command killed with -9 in the switch: nobody notices, and a command in between is told that it is locked', async () => {
  // held before its first change after probation, by a gate and not by time: the second command comes in between for certain
  const [point] = await heldEverywhere('left', 'v1.1.0', [SWITCH.indexOf('update') + 1])
  if (point === undefined) throw new Error('not held')
  const { name, gate, deployment } = point
  deployment.child.kill('SIGKILL')
  await deployment.ended
  const second = await command(engine.socketPath, name, 'v1.1.0').ended
  equal(second.code, 6, second.out)
  match(second.out, new RegExp(`docker logs -f ${name}-baton-switch`))
  const { from, to, inFlight } = await statusIn(engine, name)
  equal([from, to, inFlight], ['v1.0.0', 'v1.1.0', 'switching'])
  gate.release()
  await until('the end', async () => (await engine.inspect(`${name}-baton-switch`)).State.Running === false)
  equal(await standing(name), 'v1.1.0 always previous')
  await gate.close()
  equal((await deployIn(engine, { container: name, release: 'v1.1.0' })).outcome, 'up_to_date')
  equal((await statusIn(engine, name)).inFlight, null)
  await gone(name)
})

test('of the images of the program that does the switch one is kept: another one of an older kit goes with the next deployment', async () => {
  const programs = async () => {
    const all = await engine.docker('images', '--format', '{{.Repository}}:{{.Tag}}', 'baton-switch')
    return all.split('\n').filter(Boolean)
  }
  const [program = '', ...more] = await programs()
  equal(more, [])
  await engine.docker('tag', program, 'baton-switch:of-an-older-kit')
  await old('again')
  const { code, out } = await command(engine.socketPath, 'again', 'v1.1.0').ended
  equal([code, await programs()], [0, [program]], out)
  await gone('again')
})

for (const [i, restart] of (['always', 'no'] as const).entries()) {
  test.long(
    `the engine restarted before one change after another (${i === 0 ? 'even' : 'odd'}), restart policy ${restart}: the update is finished`,
    async () => {
      const name = `engine${i}`
      const before = await old(name, restart)
      const restarts: string[] = []
      const ended = await deployIn(engine, { container: name, release: 'v1.1.0' }, (client) =>
        witnessed(client, async (n, change) => {
          if (n % 2 !== i || n <= BEFORE) return
          restarts.push(change)
          await engine.restart()
        }),
      )
      equal([ended.outcome, ended.error?.message], ['updated', undefined])
      ok(restarts.length >= 2, restarts.join(', '))
      await runs(name, 'v1.1.0', restart)
      await engine.inspect(before.Id)
      await gone(name)
    },
  )
}

test.after(close)

test.run()
