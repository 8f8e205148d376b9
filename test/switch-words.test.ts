// What an operator and an author are told of the order of a switch: before it by `init`, `build`, both doctors, `status` and a dry run;
// after it by the result, the status and the history.

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { Operation, Status } from '../agent/words/state.ts'
import { UPDATE_BOUNDS } from '../agent/words/bounds.ts'
import { expectedPause, lastPause, pauseFault } from '../agent/words/pause.ts'
import type { Rehearsal, Verdict } from '../agent/words/rehearsal.ts'
import { type Order, orderOf } from '../agent/words/order.ts'
import { formatForeseen } from '../deploy/host/commands/move.ts'
import { alone, besideEachOther } from '../deploy/host/doctor/service.ts'
import { foreseeSwitch } from '../deploy/host/service/foresee.ts'
import { runCommand } from '../deploy/host/tree.ts'
import { onlyOneCanHave } from '../deploy/lib/only-one.ts'
import { run } from '../deploy/lib/shell.ts'
import { detect } from '../deploy/make/detect.ts'
import { examineProject } from '../deploy/make/examine.ts'
import { planInit } from '../deploy/make/init.ts'
import { PROJECT } from '../deploy/make/place.ts'
import type { Project } from '../deploy/make/project.ts'
import { tryOut } from '../deploy/make/trial-start.ts'
import { equal, is, match, not, ok, throws, withCode } from './assert.ts'
import { type Install, install } from './fixtures/install.ts'
import { quietly } from './fixtures/quietly.ts'
import { programRelease, publishTo } from './fixtures/releases.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('words of a switch', { timeoutMs: 120_000 })
const ONLY = join(import.meta.dirname, 'fixtures/only.ts')

test('if either release asks for stop-first it is that; what one does not say is not known', () => {
  const [one, two] = ['stop-first', 'start-first'] as const
  const cases: [Order | null, Order | null, Order | null][] = [
    [one, one, one],
    [one, two, one],
    [two, one, one],
    [null, one, one],
    [one, null, one],
    [two, two, two],
    [two, null, null],
    [null, two, null],
  ]
  for (const [mine, others, both] of cases) is(orderOf(mine, others), both, `${mine}, ${others}`)
})

test('the last pause is that of the newest stop-first switch, without a migration of its release; longer than `maxPause` allows is refused', () => {
  const handed = (outcome: string, pauseMs?: number, startMs = 7) => ({
    outcome,
    handover: pauseMs === undefined ? {} : { pauseMs, startMs },
  })
  const pause = (...history: Parameters<typeof lastPause>[0]) => lastPause(history)?.pauseMs ?? null
  is(pause(), null)
  is(pause(handed('updated'), { outcome: 'up_to_date', handover: null }), null)
  is(pause(handed('updated'), handed('failed', 9), handed('rolled_back', 108), handed('updated', 7)), 108)
  const limited = (pauseMs: number) => ({ outcome: 'updated', handover: { pauseMs, startMs: 7, limitHit: true } })
  is(pause(limited(10_100), handed('updated', 108)), 108, 'a limit that was hit once says nothing')
  is(pause(limited(10_100)), null)
  is(pause(limited(10_100), limited(10_050), handed('updated', 7)), 10_100, 'it is hit each time')
  const migrated = handed('updated', 40_100, 40_000)
  const usual = { pauseMs: 107, restMs: 100, shownBy: 'last-switch' } as const
  equal(lastPause([migrated, handed('updated', 120)]), usual, 'a migration belongs to its release')
  equal(lastPause([handed('updated', 107), migrated]), usual)
  equal(lastPause([migrated]), { pauseMs: 40_100, restMs: 100, shownBy: 'first-switch' })
  is(pause(migrated, migrated), 40_100, 'so long does it start each time')
  is(pause(older(40_100), older(110)), 110)
  is(pauseFault({ expectedMs: 40_100, shownBy: 'first-switch' }, 15_000), null)
  ok(UPDATE_BOUNDS.maxPauseMs[2] > UPDATE_BOUNDS.stopMs[2] + UPDATE_BOUNDS.quietMs[2])
  is(pauseFault(null, 100), null)
  const last = (expectedMs: number) => ({ expectedMs, shownBy: 'last-switch' }) as const
  is(pauseFault(last(100), 100), null)
  const fault = pauseFault(last(101), 100)
  is(fault?.message, 'clients would have to wait about 101 ms, but `maxPause` allows 100ms')
  match(fault?.hint ?? '', /update\.maxPause.*run `rollback`, which measures this wait again, and then upgrade/)
})

test('the expected pause is what a trial of the release has measured and the last stop took, else that of the last switches', () => {
  const tried = (verdict: Verdict, migrationMs: number | null, copyMs: number | null = 30) => ({
    verdict,
    migrationMs,
    copyMs,
  })
  const last = { pauseMs: 40_100, restMs: 100, shownBy: 'last-switch' } as const
  const first = { ...last, shownBy: 'first-switch' } as const
  const cases: [ReturnType<typeof lastPause>, ReturnType<typeof tried> | null, ReturnType<typeof expectedPause>][] = [
    [null, null, null],
    [last, null, { expectedMs: 40_100, shownBy: 'last-switch' }],
    [first, tried('untried', null), { expectedMs: 40_100, shownBy: 'first-switch' }],
    [last, tried('reversible', 25_000), { expectedMs: 25_100, shownBy: 'trial' }],
    [null, tried('unproven', 25_193), { expectedMs: 25_193, shownBy: 'trial' }],
    [null, tried('irreversible', 500), { expectedMs: 530, shownBy: 'trial' }],
    [first, tried('irreversible', 500, null), { expectedMs: 600, shownBy: 'trial' }],
    [last, tried('reversible', 500), { expectedMs: 600, shownBy: 'trial' }],
  ]
  for (const [shown, rehearsal, expected] of cases)
    equal(expectedPause(shown, rehearsal), expected, JSON.stringify([shown, rehearsal]))
  const fault = pauseFault({ expectedMs: 25_193, shownBy: 'trial' }, 15_000)
  is(
    fault?.message,
    'clients would have to wait about 25193 ms (as in the trial on a copy of the data), but `maxPause` allows 15s',
  )
  not(/rollback/.test(fault?.hint ?? ''))
})

test('a dry run says the order, what it cannot know, and throws what the service would refuse', () => {
  const status = (next: Status['switch']) =>
    ({ switch: next, history: next?.expectedMs === 110 ? [older(110), older(9000)] : [] }) as unknown as Status
  const alone = { order: 'stop-first', expectedMs: 110, maxPauseMs: 10_000 } as const
  const beside = { ...alone, order: 'start-first' } as const
  const said = (next: Status['switch'], asked: Order | null, tried: Rehearsal | null = null) =>
    formatForeseen(foreseeSwitch('update', status(next), asked, tried), 'v1.1.0')
  is(said(alone, null), 'the switch: stop-first; clients would wait about 110 ms (as in recent switches)')
  is(said(beside, 'stop-first'), said(alone, 'start-first'))
  match(said({ ...alone, expectedMs: null }, null), /not known until the first switch/)
  is(said(beside, 'start-first'), 'the switch: start-first, so no client would wait')
  match(
    said(beside, null),
    /^the switch: start-first, without a wait, if v1\.1\.0 also declares that; otherwise stop-first: then clients/,
  )
  match(said({ ...beside, maxPauseMs: 100 }, null), /`maxPause` allows 100ms, so the switch would be refused/)
  match(said({ ...beside, expectedMs: null }, null), /otherwise stop-first$/)
  const once = { switch: { ...beside, maxPauseMs: 8000 }, history: [older(9000)] } as unknown as Status
  is(
    formatForeseen(foreseeSwitch('update', once, 'stop-first', null), 'v1.1.0'),
    'the switch: stop-first; clients would wait about 9000 ms (as in the only completed switch so far)',
  )
  not(/refused/.test(formatForeseen(foreseeSwitch('update', once, null, null), 'v1.1.0')))
  const unknown = { order: null, expectedMs: null, shownBy: null, maxPauseMs: null }
  equal(foreseeSwitch('update', status(undefined), 'start-first', null), unknown)
  match(formatForeseen(foreseeSwitch('update', null, 'start-first', null), 'v1.1.0'), /^the service is not running/)
  const slow: Rehearsal = { verdict: 'reversible', reason: '', rows: 1, copyMs: 9, migrationMs: 9000, tookMs: 9100 }
  match(said(alone, null, slow), /stop-first; clients would wait about 9000 ms \(as in the trial on a copy/)
  match(
    said({ ...beside, maxPauseMs: 8000 }, null, slow),
    /9000 ms .*`maxPause` allows 8s, so the switch would be refused/,
  )
  is(said(beside, 'start-first', slow), 'the switch: start-first, so no client would wait')
  const tooShort = status({ ...alone, maxPauseMs: 8000 })
  throws(() => foreseeSwitch('update', tooShort, null, slow), withCode('refused'))
  is(foreseeSwitch('rollback', tooShort, null, null)?.expectedMs, 110)
  for (const next of [alone, beside])
    throws(() => foreseeSwitch('update', status({ ...next, maxPauseMs: 100 }), 'stop-first', null), withCode('refused'))
  is(foreseeSwitch('update', status({ ...beside, maxPauseMs: 100 }), 'start-first', null)?.order, 'start-first')
})

test('doctor compares the last pause with `maxPause` and with what balancers and webhook senders bear', () => {
  const next = { maxPauseMs: 10_000 }
  const shown = (pauseMs: number) => ({ pauseMs, restMs: 0, shownBy: 'last-switch' }) as const
  const short = alone(next, shown(108))
  is(short.level, 'ok')
  is(
    short.message,
    'stop-first; at the next switch, clients would wait about 108 ms; `maxPause` allows 10s; load balancers and webhook senders give up after 3 to 10 s',
  )
  is(alone(next, shown(3000)).level, 'warning')
  is(alone(next, null).level, 'ok')
  is(alone(next, { ...shown(10_001), shownBy: 'first-switch' }).level, 'warning')
  const long = alone(next, shown(10_001))
  is(long.level, 'problem')
  match(long.message, /every update would be refused/)
  is(besideEachOther([]).level, 'ok')
  const against = besideEachOther(['UDP port 53', 'the lock on /x'])
  is(against.level, 'warning')
  match(against.message, /only one process can hold UDP port 53, the lock on \/x/)
})

test('a UDP port, a lock by flock, in a child too, and a further port are what only one process can have', async () => {
  await using room = await temporary('words')
  const file = join(room.path, 'only.lock')
  await using one = await started('flock', [file, process.execPath, '-e', PORTS])
  const { udp, tcp } = JSON.parse(one.said) as { udp: number; tcp: [number, number] }
  const pid = one.child.pid ?? 0
  equal(await onlyOneCanHave(pid), [`the lock on ${file}`])
  const served = { port: tcp[0], servers: 1 }
  equal(await onlyOneCanHave(pid, served), [`the lock on ${file}`, `UDP port ${udp}`, `TCP port ${tcp[1]}`])
  is((await onlyOneCanHave(pid, { ...served, servers: 2 })).length, 2)
})

test('the trial start of a build names it where two are to live at once, and says nothing of it otherwise', async () => {
  await using room = await temporary('words')
  const path = join(room.path, 'svc')
  const program = `#!${process.execPath}
    require('${join(PROJECT, 'agent/adapters/auto.ts')}')
    const { listen } = JSON.parse(require('node:fs').readFileSync(process.argv[4]))
    require('node:dgram').createSocket('udp4').bind(0, '127.0.0.1', () =>
      require('node:http').createServer((request, response) => response.end('ok')).listen(listen.port, '127.0.0.1'))`
  await writeFile(path, program, { mode: 0o755 })
  const project = (order: Order) =>
    ({
      service: 'svc',
      healthPath: '/',
      servers: 1,
      database: null,
      order,
      try: { environment: {} },
    }) as Project
  const { warnings } = await tryOut(project('start-first'), path)
  is(warnings.length, 1)
  match(warnings[0] ?? '', /^`order` is "start-first", but only one process can hold UDP port \d+$/)
  equal((await tryOut(project('stop-first'), path)).warnings, [])
})

test('init explains the choice in two sentences and writes it; a second run changes nothing and explains nothing', async () => {
  await using room = await temporary('words')
  const file = (name: string) => join(room.path, name)
  await writeFile(file('package.json'), JSON.stringify({ name: 'shop', main: 'server.js' }))
  await writeFile(file('server.js'), `require('node:http')\n`)
  const { files, notes } = planInit(detect(room.path))
  is((JSON.parse(files[0]?.content ?? '') as Project).order, 'stop-first')
  is(
    notes
      .filter((note) => /stop-first|start-first/.test(note))
      .join(' ')
      .split(/\.(?: |$)/).length - 1,
    2,
  )
  const init = async () => {
    const { stdout, stderr } = await run([
      process.execPath,
      '--import',
      import.meta.resolve('tsx'),
      join(PROJECT, 'deploy/baton.ts'),
      'init',
      '--yes',
      '--dir',
      room.path,
    ])
    return stdout + stderr
  }
  match(await init(), /no timer, bot or lock is ever duplicated/)
  const chosen = (await readFile(file('baton.config.json'), 'utf8')).replace('stop-first', 'start-first')
  await writeFile(file('baton.config.json'), chosen)
  const again = await init()
  match(again, /nothing to write/)
  not(/stop-first/.test(again))
  is(await readFile(file('baton.config.json'), 'utf8'), chosen)
  const about = async () => (await examineProject(room.path)).find(({ check }) => check === 'order')?.message ?? ''
  match(await about(), /^order: start-first, so two processes run at once/)
  await writeFile(file('baton.config.json'), chosen.replace('start-first', 'stop-first'))
  match(await about(), /^order: stop-first, .* give up after 3 to 10 s$/)
})

test('on a host: status, dry run, result and doctor tell the order and the pause, and a pause too long is refused', async () => {
  const [old, next] = [await programRelease('v1.0.0', ONLY), await programRelease('v1.1.0', ONLY)]
  await using home = await install({
    release: old,
    update: { quietTimeout: '500ms', probation: '500ms', maxPause: '1m' },
  })
  await publishTo(home.receipt.feed, [old, next])
  await home.start()
  const status = async () => (await home.api('GET', '/admin/update/status')).body as Status
  equal((await status()).switch, { order: 'stop-first', expectedMs: null, maxPauseMs: 60_000, readyMs: 10_000 })
  match(await told(home, ['upgrade', '--dry-run']), /not known until the first switch/)

  const result = await told(home, ['upgrade'])
  const pauseMs = (await status()).history[0]?.handover?.pauseMs ?? 0
  ok(pauseMs > 0)
  match(
    result,
    new RegExp(`v1\\.1\\.0 is running and healthy, replacing v1\\.0\\.0; .*; requests waited ${pauseMs} ms`),
  )
  equal((await status()).switch, { order: 'stop-first', expectedMs: pauseMs, maxPauseMs: 60_000, readyMs: 10_000 })
  const shown = await told(home, ['status'])
  match(shown, new RegExp(`switch +stop-first; at the next switch, clients would wait about ${pauseMs} ms`))
  match(shown, new RegExp(`last +update v1\\.0\\.0 to v1\\.1\\.0: updated at \\S+, requests waited ${pauseMs} ms`))
  const wait = new RegExp(
    `the switch: stop-first; clients would wait about ${pauseMs} ms \\(as in the only completed switch so far`,
  )
  match(await told(home, ['rollback', '--dry-run']), wait)
  const json = (await told(home, ['rollback', '--dry-run', '--json'])).trim().split('\n').at(-1) ?? ''
  equal((JSON.parse(json) as { switch: unknown }).switch, {
    order: 'stop-first',
    expectedMs: pauseMs,
    shownBy: 'first-switch',
    maxPauseMs: 60_000,
  })
  match(await told(home, ['doctor'], null), new RegExp(`switch +stop-first; at the next switch, .* ${pauseMs} ms`))

  const journal = join(home.stateDirectory, 'update/journal.json')
  const pretend = async () =>
    writeFile(journal, (await readFile(journal, 'utf8')).replace(/"(pause|start)Ms":\s*\d+/g, '"$1Ms": 60001'))
  // the way back is never barred
  await pretend()
  match(await told(home, ['rollback', '--dry-run']), /clients would wait about 60001 ms/)
  await told(home, ['rollback'])
  await pretend()
  const refusal = /clients would have to wait about 60001 ms, but `maxPause` allows 1m/
  match(await told(home, ['upgrade', '--dry-run'], 7), refusal)
  match(await told(home, ['doctor'], null), /problem +switch .*every update would be refused/)
  const before = await status()
  match(await told(home, ['upgrade'], 7), refusal)
  const after = await status()
  is(after.instance.id, before.instance.id)
  const { outcome, error, stage, bytes } = after.operation as Operation
  equal([outcome, error?.code, stage, bytes], ['failed', 'refused', 'check', 0]) // nothing was fetched, and nothing changed
})

/** Everything that the command prints. `code` null: it does not matter. */
async function told({ receipt }: Install, argv: string[], code: number | null = 0): Promise<string> {
  const where = ['--user', '--prefix', dirname(receipt.executable)]
  const { service } = receipt
  const ended = await quietly(() => runCommand([...argv, ...where], { service, tag: 'v1.0.0' }))
  if (code !== null) is(ended.code, code, ended.text)
  return ended.text
}

const PORTS = `
  const udp = require('node:dgram').createSocket('udp4').bind(0, '127.0.0.1')
  const asks = require('node:dgram').createSocket('udp4')
  asks.connect(9, '127.0.0.1')
  const tcp = [0, 0].map(() => require('node:net').createServer().listen(0, '127.0.0.1'))
  setTimeout(() => console.log(JSON.stringify({ udp: udp.address().port, tcp: tcp.map((one) => one.address().port) })), 200)`

async function started(
  command: string,
  argv: string[],
): Promise<AsyncDisposable & { child: ChildProcess; said: string }> {
  const child = spawn(command, argv, { stdio: ['ignore', 'pipe', 'inherit'], detached: true })
  const gone = once(child, 'exit')
  const [said] = (await once(child.stdout, 'data')) as [Buffer]
  const end = async () => {
    process.kill(-(child.pid ?? 0), 'SIGKILL')
    await gone
  }
  return { child, said: String(said), [Symbol.asyncDispose]: end }
}

test.run()

/** A switch from before the start was measured. */
function older(pauseMs: number) {
  return { outcome: 'updated', handover: { pauseMs } }
}
