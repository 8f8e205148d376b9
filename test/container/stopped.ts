// A deployment that is stopped by a signal, and one that is killed where no container does the switch: it says whether it went back
// or finished, and a second run finishes it or undoes it.

import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { run } from '../../deploy/lib/shell.ts'
import { isLong, suite } from '../suite.ts'
import { equal, match, not, rejects, withCode } from '../assert.ts'
import { labFolder, openLab } from '../lab/docker.ts'
import { packedKit } from '../pack/main.ts'
import { command, cutting, range } from './cutting.ts'
import { deployIn, statusIn, until } from './probe.ts'
import { sideBySide } from './side-by-side.ts'

const { skip, engine, registry, close } = await openLab()
const test = suite('container stopped', { timeoutMs: 300_000, skip })
const { prepare, old, gone, runs, leftovers, killed, someAtOnce } = cutting(engine, registry)
/** changes of an update with a second network before the switch: tag, create, connect, tag; and of the switch */
const BEFORE = 4
const SWITCH = 7
const beside = sideBySide(test, 4)
const MAIN = join(import.meta.dirname, '../../deploy/deploy-container.ts')

test.before(prepare)

const SIGNALS = [
  ['SIGINT', 'switch'],
  ['SIGHUP', 'switch'],
  ['SIGINT', 'plan'],
  ['SIGTERM', 'switch'],
] as const

for (const [signal, when] of isLong ? SIGNALS : SIGNALS.slice(0, 2)) {
  const isFinished = signal === 'SIGHUP'
  beside(`${signal} at the ${when}: ${isFinished ? 'finishes' : 'goes back'}, and says so`, async () => {
    const name = `signal-${signal}-${when}`.toLowerCase()
    const before = await old(name)
    const { child, said, ended } = command(engine.socketPath, name, 'v1.1.0', [
      '--probation',
      isFinished ? '1s' : '20s',
    ])
    await until(`${when} of ${name}`, async () => said().includes(when === 'plan' ? '"plan"' : '"probation"'))
    child.kill(signal)
    const { code, out } = await ended
    const last = JSON.parse(
      out
        .trim()
        .split('\n')
        .findLast((line) => line.startsWith('{')) ?? '{}',
    )
    if (isFinished) equal([code, last.outcome], [0, 'updated'])
    else {
      match(last.message, new RegExp(`stopped by ${signal}|undone on request`))
      equal([code, last.outcome], when === 'plan' ? [7, 'failed'] : [8, 'reverted'], out)
      equal((await engine.inspect(name)).Id, before.Id)
      await rejects(engine.docker('image', 'inspect', `baton-failed:${name}`)) // it was stopped, and has not failed
    }
    await runs(name, isFinished ? 'v1.1.0' : 'v1.0.0')
    equal(
      (await leftovers(name)).filter((left) => !/(previous|failed)$/.test(left)),
      [],
    )
    await gone(name)
  })
}

test.long('the installed package has a container for the switch, as a clone has', async () => {
  const kit = join(labFolder(), 'shop/node_modules/baton-kit')
  await mkdir(kit, { recursive: true })
  await run(['tar', '-xzf', await packedKit(), '-C', kit, '--strip-components=1'])
  await old('packed')
  const words = ['--container', 'packed', '--release', 'v1.1.0', '--probation', '300ms', '--json']
  const { stdout, stderr } = await run(
    [process.execPath, join(kit, 'lib/esm/baton.js'), 'deploy', 'container', ...words],
    {
      cwd: join(kit, '../..'),
      env: engine.environment,
    },
  )
  not.match(stdout + stderr, /the switch itself/)
  match(stdout, '"outcome":"updated"')
  await runs('packed', 'v1.1.0')
  await gone('packed')
})

test('without a container for the switch, killed before any change: a second run finishes it', async () => {
  const points = isLong ? range(1, BEFORE + SWITCH) : [BEFORE + 4]
  await someAtOnce(points, async (n) => {
    const name = `kill${n}`
    const before = await old(name)
    const said = await killed(name, 'v1.1.0', n)
    equal(said.length, n, `${name}: ${said.join(', ')}`)
    const ended = await deployIn(engine, { container: name, release: 'v1.1.0' })
    equal([ended.outcome, ended.error?.message], ['updated', undefined], `${name} at ${said.at(-1)}`)
    await runs(name, 'v1.1.0')
    await engine.inspect(before.Id)
    equal(await leftovers(name), [`${name}-baton-previous`])
    await gone(name)
  })
})

test.long(
  'without it, killed before some changes of an update: --rollback undoes it, and says where nothing was begun',
  async () => {
    // up to `create` nothing is there to undo, and it says so
    await someAtOnce(range(3, BEFORE + SWITCH), async (n) => {
      const name = `undo${n}`
      const before = await old(name)
      const said = await killed(name, 'v1.1.0', n)
      const rollback = deployIn(engine, { container: name, release: null })
      if (n <= BEFORE + 1) {
        const { message } = await rejects(rollback, withCode('refused'))
        match(
          message,
          /^nothing was rolled back, because .* of v1\.1\.0 was cut short before it changed anything: v1\.0\.0 is still running/,
        )
      } else {
        const ended = await rollback
        equal([ended.outcome, ended.to], ['rolled_back', 'v1.0.0'], `${name} at ${said.at(-1)}`)
      }
      await runs(name, 'v1.0.0')
      equal((await engine.inspect(name)).Id, before.Id)
      equal(
        (await leftovers(name)).filter((left) => !left.endsWith('-failed')),
        [],
      )
      await gone(name)
    })
  },
)

test.long(
  'after a cut before the switch --status tells what ran before, and --rollback goes there or says that it does not',
  async () => {
    const cut = async (name: string, release: string | null, n: number) => {
      await old(name)
      equal((await deployIn(engine, { container: name, release: 'v1.1.0' })).outcome, 'updated')
      await killed(name, release, n)
      const { from, to, inFlight } = await statusIn(engine, name)
      equal([from, to, inFlight], ['v1.0.0', 'v1.1.0', null], name)
    }
    const rolledBack = async (name: string, backTo: string | null) => {
      const dry = await deployIn(engine, { container: name, release: null, backTo, dryRun: true })
      equal([dry.outcome, dry.would, dry.to], ['planned', 'rolled_back', 'v1.0.0'], name)
      const ended = await deployIn(engine, { container: name, release: null, backTo })
      equal([ended.outcome, ended.from, ended.to], ['rolled_back', 'v1.1.0', 'v1.0.0'], name)
      await runs(name, 'v1.0.0')
      equal(await leftovers(name), [`${name}-baton-previous`])
      await gone(name)
    }
    const cases = ['unnamed', 'midway', 'again', 'named', 'other']
    await someAtOnce(isLong ? cases : cases.slice(0, 2), async (name) => {
      // a rollback is cut at the tag that keeps the present image, which comes after the comparison; it needs no other tag
      if (name === 'again') return await cut(name, null, BEFORE - 1).then(() => rolledBack(name, null))
      if (name === 'midway') {
        await old(name)
        equal((await deployIn(engine, { container: name, release: 'v1.1.0' })).outcome, 'updated')
        await killed(name, null, BEFORE - 1 + 4) // the old one has stopped
        const ended = await deployIn(engine, { container: name, release: null })
        equal([ended.outcome, ended.to], ['rolled_back', 'v1.0.0'], 'a cut rollback is finished, not undone')
        await runs(name, 'v1.0.0')
        return await gone(name)
      }
      await cut(name, 'v1.2.1', BEFORE)
      if (name === 'named') return await rolledBack(name, 'v1.0.0')
      if (name === 'other') {
        await rejects(
          deployIn(engine, { container: name, release: null, backTo: 'v0.9.0' }),
          withCode('release_not_found'),
        )
      } else {
        const cause = await rejects(deployIn(engine, { container: name, release: null }), withCode('refused'))
        match(
          cause.message,
          /^nothing was rolled back, because .* of v1\.2\.1 was cut short .*: v1\.1\.0 is still running/,
        )
      }
      await runs(name, 'v1.1.0')
      await rolledBack(name, null)
    })
  },
)

test('what a killed run has left is in the status, and `--clean` removes it; an image that is here is deployed without its registry', async () => {
  const name = 'leftovers'
  const before = await old(name)
  await killed(name, 'v1.1.0', BEFORE)
  equal((await statusIn(engine, name)).left, [`${name}-baton-successor`])
  const words = [process.execPath, ...process.execArgv, MAIN, '--container', name]
  const { stdout } = await run([...words, '--clean', '--json'], { env: engine.environment })
  match(stdout, `removed the container ${name}-baton-successor`)
  equal(await leftovers(name), [])
  equal((await statusIn(engine, name)).left, [])
  equal((await engine.inspect(name)).Id, before.Id)

  const never = { container: name, pull: 'never' } as const
  const cause = await rejects(deployIn(engine, { ...never, release: 'v7.7.7' }), withCode('release_not_found'))
  match(cause.message, /\S+:v7\.7\.7 is not on this host, and `--pull never` prevents pulling it/)
  const { Image } = (await engine.inspect(name)).Config
  await engine.docker('pull', '-q', Image.replace(/:v1\.0\.0$/, ':v1.1.0'))
  equal((await deployIn(engine, { ...never, release: 'v1.1.0' })).outcome, 'updated')
  // back to a release that did not run right before
  const back = await deployIn(engine, { container: name, release: null, backTo: 'v1.0.0' })
  equal([back.outcome, back.to], ['rolled_back', 'v1.0.0'])
  await registry.stop()
  await rejects(deployIn(engine, { container: name, pull: 'always', release: 'v1.1.0' }), withCode('check_failed'))
  equal((await deployIn(engine, { container: name, pull: 'missing', release: 'v1.1.0' })).outcome, 'updated')
  await registry.start()
  await gone(name)
})

test.after(close)

test.run()
