// @deadlineMs 900000
// What is decided about a fleet: the real deploy-fleet.sh, Ansible and playbook, on hosts of which only the answers are there.
// What happens on real hosts is in fleet-hosts.test.ts; the controller that dies at each step in fleet-killed.test.ts.
// What needs no Ansible to be decided is asked of the collection's own Python.

import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { equal, is, match, not, rejects } from './assert.ts'
import { type FleetEvent, heard, makeStubFleet, type Moved, noAnsible, python } from './lab/stub-fleet.ts'
import { isLong, suite } from './suite.ts'

const test = suite('fleet', { skip: noAnsible, timeoutMs: 150_000 })

const SCRIPT = join(import.meta.dirname, '../deploy/deploy-fleet.sh')
const exec = promisify(execFile)
const TO = ['--release', 'v1.1.0', '--soak', '0'] as const

test('moves in waves, the canary first, and the report is what was said', async () => {
  await using fleet = await makeStubFleet(5)
  // who has it already is no canary
  await fleet.set('h1', 'running', 'v1.1.0\n')
  const moved = await fleet.move(...TO, '--waves', '1,50%,100%')
  is(moved.code, 0, moved.stderr)
  equal(wavesOf(moved), [['h2'], ['h3', 'h4'], ['h5']])
  equal(await fleet.running(), Array(5).fill('v1.1.0'))
  equal(
    moved.result?.hosts.map(({ host, wave, from, to, outcome }) => [host, wave, from, to, outcome].join(' ')),
    [
      'h1  v1.1.0 v1.1.0 up_to_date',
      ...['h2 1', 'h3 2', 'h4 2', 'h5 3'].map((host) => `${host} v1.0.0 v1.1.0 updated`),
    ],
  )
  equal(await fleet.events(), moved.events)
  // nobody of a wave is asked before the wave before was good
  const order = moved.events.flatMap((event) =>
    event.event === 'wave' && event.step !== 'soak'
      ? [`${event.step} ${event.wave}`]
      : event.event === 'host'
        ? [String(event.wave)]
        : [],
  )
  equal(order, ['begin 1', '1', 'good 1', 'begin 2', '2', '2', 'good 2', 'begin 3', '3', 'good 3'])
  const again = await fleet.move(...TO)
  equal([again.code, again.result?.outcome, again.result?.counts], [0, 'up_to_date', { up_to_date: 5 }])
})

test('a check ends with the plan, and changes nothing', async () => {
  await using fleet = await makeStubFleet(3)
  const checked = await fleet.move(...TO, '--check')
  equal([checked.code, checked.result?.outcome], [0, 'planned'], checked.stderr)
  equal(wavesOf(checked), [['h1'], ['h2'], ['h3']])
  for (const name of fleet.names) equal(await fleet.done(name), [])
})

test('`latest` is one tag for all; who remembers it as bad is left out, or stops everything', async () => {
  const seen = { h1: seenOf({ latest: 'v1.0.5' }), h2: seenOf({ latest: 'v1.1.0' }), h3: seenOf({ latest: 'v1.0.0' }) }
  is(await python('judge', 'latest(given)', seen), 'v1.1.0')
  Object.assign(seen.h3, { bad: [{ tag: 'v1.1.0', why: 'it died here' }] })
  const asked = { asked: 'latest', release: 'v1.1.0' }
  const stopped = await planned(seen, asked)
  equal(stopped.stop, {
    why: 'h3 cannot be updated: v1.1.0 is recorded as bad on this host: it died here; to continue without them, pass `--max-fail-percentage 34`',
    exit: 7,
  })
  const went = await planned(seen, { ...asked, max_fail_percentage: 34 })
  equal([went.stop, went.outcomes], [null, { h1: null, h2: null, h3: 'refused' }])
  // who names it means it
  equal((await planned(seen)).outcomes, { h1: null, h2: null, h3: null })
})

test.long(
  'channels: one host on beta takes nobody else there; it goes by its tag, is left alone by `latest`, and takes the newer stable release',
  async () => {
    await using fleet = await makeStubFleet(3)
    const BETA = 'v1.2.0-beta.1'
    await fleet.set('h2', 'latest', `"${BETA}"`)
    const all = await fleet.move('latest', '--soak', '0')
    equal([all.code, all.result?.release], [0, 'v1.1.0'], all.stderr)
    equal(await fleet.running(), ['v1.1.0', 'v1.1.0', 'v1.1.0'])
    const one = await fleet.move(BETA, '--soak', '0', '--limit', 'h2')
    equal([one.code, one.rows['h2']?.outcome, one.rows['h2']?.to], [0, 'updated', BETA], one.stderr)
    const again = await fleet.move('latest', '--soak', '0')
    equal([again.code, again.result?.counts], [0, { up_to_date: 3 }], again.stderr)
    equal(await fleet.running(), ['v1.1.0', BETA, 'v1.1.0'])
    // named, it stays a step back that somebody has to want
    is((await fleet.move('v1.1.0', '--soak', '0')).code, 7)
    for (const name of fleet.names) await fleet.set(name, 'latest', '"v1.2.0"')
    const stable = await fleet.move('latest', '--soak', '0')
    equal([stable.code, await fleet.running()], [0, ['v1.2.0', 'v1.2.0', 'v1.2.0']], stable.stderr)
    const back = await fleet.move('--rollback', '--soak', '0', '--limit', 'h2')
    equal([back.code, await fleet.running()], [0, ['v1.2.0', BETA, 'v1.2.0']], back.stderr)
    // where all are on beta, it is the latest
    is(
      await python('judge', 'latest(given)', { h1: seenOf({ latest: BETA }), h2: seenOf({ latest: 'v1.2.0-beta.2' }) }),
      'v1.2.0-beta.2',
    )
  },
)

test.long(
  'fleet_accept_unit: a host is moved by `install --accept-unit`, which alone may write its unit; the way back is a rollback',
  async () => {
    await using fleet = await makeStubFleet(2)
    const asked = async (host: string) =>
      (await fleet.get(host, 'log')).split('\n').map((line) => line.split(' --lock')[0])
    const moved = await fleet.move(...TO, '--', '--extra-vars', '{"fleet_accept_unit": true}')
    is(moved.code, 0, moved.stderr)
    for (const host of ['h1', 'h2']) {
      equal(await asked(host), ['install v1.1.0'])
      match(await fleet.get(host, 'log'), / -y --accept-unit$/)
    }
    is((await fleet.move('--rollback', '--soak', '0', '--', '-e', 'fleet_accept_unit=true')).code, 0)
    equal(await asked('h1'), ['install v1.1.0', 'rollback v1.0.0'])
    // it has written the unit, and there was nothing to move
    const said = { event: 'result', outcome: 'installed', from: 'v1.1.0', to: 'v1.1.0', operationId: null, exit: 0 }
    const ended = 'moved([Call("x", 0, given, "")], "v1.1.0")["outcome"]'
    is(await python('answers', ended, said), 'up_to_date')
    is(await python('answers', ended, { ...said, from: 'v1.0.0' }), 'unknown')
  },
)

test('what the look finds stops the run before anything is changed', async () => {
  await using fleet = await makeStubFleet(4)
  await fleet.set('h1', 'down', '9')
  const damaged = { check: 'database', level: 'problem', message: '/var/lib/beacon/beacon.db is damaged' }
  await fleet.set('h2', 'findings', JSON.stringify([damaged]))
  const refusal = { event: 'error', message: 'v1.1.0 has no asset for linux-riscv64', exit: 4 }
  await fleet.set('h3', 'refusal', JSON.stringify(refusal))
  // for the newest release, which this is not: for v1.1.0 the dry run has found enough
  const short = { check: 'space', level: 'failure', message: 'not enough space: 3 MiB free, 200 MiB needed' }
  await fleet.set('h4', 'findings', JSON.stringify([short]))
  const refused = await fleet.move(...TO)
  equal([refused.code, refused.result?.outcome], [9, 'refused'], refused.stderr)
  match(
    refused.stderr,
    'h1, h2, h3 cannot be updated: the service is down (failed); to continue without them, pass `--max-fail-percentage 75`',
  )
  equal(
    refused.result?.hosts.map(({ why, exit }) => [why, exit]),
    [
      ['the service is down (failed)', 9],
      ['database: /var/lib/beacon/beacon.db is damaged', 7],
      ['v1.1.0 has no asset for linux-riscv64', 4],
      [null, 0],
    ],
  )
  for (const name of fleet.names) equal(await fleet.done(name), [])
  const differing = await planned({ h4: seenOf({ sha256: 'abc' }), h5: seenOf({ sha256: 'def' }) })
  equal(differing.stop, {
    why: 'the hosts would get different files of v1.1.0 for Linux x86_64: abc… on h4; def… on h5',
    exit: 5,
  })
  const twins = await planned({ h4: seenOf({ instance: 'x' }), h5: seenOf({ instance: 'x' }) })
  equal(twins.stop, { why: 'h4 and h5 are the same host: they run the same process of the service', exit: 2 })
  is((await planned({ h1: null, h2: seenOf({}) })).stop?.exit, 4)
})

test('a canary that reverts stops it, and nobody else was asked; what it says is never expanded on the controller', async () => {
  await using fleet = await makeStubFleet(3)
  const made = join(fleet.folder, 'made')
  await fleet.set('h1', 'ends', 'reverted')
  await fleet.set('h1', 'message', `{{ lookup('pipe', 'touch ${made}') }}`)
  const { code, rows, stderr } = await fleet.move(...TO)
  is(code, 8)
  match(stderr, 'h1 was reverted: {{ lookup(')
  equal(
    fleet.names.map((name) => rows[name]?.outcome),
    ['reverted', 'untouched', 'untouched'],
  )
  for (const name of ['h2', 'h3']) equal(await fleet.done(name), [])
  is(existsSync(made), false)
  // the hosts of a wave that failed, as Ansible writes them
  is(await readFile(join(fleet.folder, 'waves.retry'), 'utf8'), 'h1\n')
})

test.long('a release that is bad from the fourth host on: who goes back is as it was said', async () => {
  const policies = [
    ['wave', 'v1.1.0 v1.0.0 v1.0.0 v1.0.0 v1.0.0'],
    ['none', 'v1.1.0 v1.1.0 v1.1.0 v1.0.0 v1.0.0'],
  ] as const
  for (const [policy, running] of policies) {
    await using fleet = await makeStubFleet(5)
    await fleet.set('h4', 'ends', 'reverted')
    const { code, rows } = await fleet.move(...TO, '--waves', '1,3,100%', '--on-failure', policy)
    is(code, 8, policy)
    is((await fleet.running()).join(' '), running, policy)
    equal([rows['h4']?.outcome, rows['h5']?.outcome], ['reverted', 'untouched'], policy)
    is(rows['h3']?.outcome, policy === 'none' ? 'updated' : 'taken_back', policy)
  }
})

test('the gate has the last word on a wave, and is told what it is about', async () => {
  await using fleet = await makeStubFleet(4)
  const seen = join(fleet.folder, 'gate')
  const gate = `echo "$BATON_RELEASE $BATON_WAVE $BATON_HOSTS" >> ${seen}; echo 'errors 7 %'; test $BATON_WAVE = 1`
  const { code, stderr, rows } = await fleet.move(...TO, '--waves', '1,2,100%', '--gate', gate, '--on-failure', 'fleet')
  is(code, 8)
  match(stderr, 'the gate did not let the deployment continue: it exited with code 1: errors 7 %')
  equal((await readFile(seen, 'utf8')).trim().split('\n'), ['v1.1.0 1 h1', 'v1.1.0 2 h2 h3'])
  equal(await fleet.running(), ['v1.0.0', 'v1.0.0', 'v1.0.0', 'v1.0.0'])
  for (const name of ['h1', 'h2', 'h3']) equal(await fleet.done(name), ['upgrade v1.1.0', 'rollback v1.0.0'])
  is(rows['h4']?.outcome, 'untouched')
})

test('a share of a wave may fail, as max_fail_percentage has it; a wave without a good host proves nothing', async () => {
  await using fleet = await makeStubFleet(5)
  await fleet.set('h3', 'ends', 'busy')
  await fleet.set('h4', 'ends', 'down')
  const args = [...TO, '--waves', '1,3,100%', '--max-fail-percentage', '67']
  const { code, rows, stderr, result } = await fleet.move(...args)
  equal(
    fleet.names.map((name) => rows[name]?.outcome),
    ['updated', 'updated', 'busy', 'taken_back', 'updated'],
  )
  is(code, 6, stderr)
  match(stderr, /error: the run continued without h3: 1 of 5 hosts needs attention\ncheck this host:\nh3 .* busy .*\n$/)
  equal(result?.look, ['h3'])
  const judged = (share: number, ...outcomes: string[]) => {
    const rows = Object.fromEntries(outcomes.map((outcome, i) => [`h${i}`, { outcome, why: '', exit: 8 }]))
    return python('judge', 'verdict(given[0], given[1])', [rows, { max_fail_percentage: share }])
  }
  is(await judged(50, 'reverted', 'updated'), null)
  not.equal(await judged(49, 'reverted', 'updated'), null)
  not.equal(await judged(99, 'reverted', 'gone'), null)
})

test('a host that vanished in its move and is found again: what it did is called as the host itself would', async () => {
  const foundAgain = async (from: string | null, to: string, rollback = false) => {
    const row = { from, to, outcome: 'gone', why: 'it vanished', exit: 4 }
    const now = { running: to, busy: false, known: true, why: null, restarted: null }
    const options = { rollback, max_fail_percentage: 0 }
    const [rows] = (await python('judge', 'judge_soak(given[0], given[1], None, given[2])', [
      { h1: row },
      { h1: now },
      options,
    ])) as [Record<string, { outcome: string }>]
    return rows['h1']?.outcome
  }
  equal(
    [
      await foundAgain('v1.0.0', 'v1.1.0'),
      await foundAgain('v1.10.0', 'v1.9.0'),
      await foundAgain('v1.0.0', 'v1.1.0', true),
      await foundAgain(null, 'v1.1.0'),
    ],
    ['updated', 'rolled_back', 'rolled_back', 'updated'],
  )
})

test.long('a host that does not come back is said to be down, with 9', async () => {
  await using fleet = await makeStubFleet(3)
  await fleet.set('h2', 'ends', 'down')
  await fleet.set('h2', 'ends-back', 'down')
  const { code, rows } = await fleet.move(...TO, '--waves', '100%')
  is(code, 9)
  equal([rows['h1']?.outcome, rows['h2']?.outcome], ['taken_back', 'down'])
})

test('a rollback goes to each backup, never forward, and to a tag where one is named', async () => {
  await using fleet = await makeStubFleet(3)
  for (const name of ['h1', 'h2']) await fleet.set(name, 'running', 'v1.1.0\n')
  for (const name of ['h1', 'h2']) await fleet.set(name, 'backup', 'v1.0.0\n')
  await fleet.set('h3', 'backup', 'v1.1.0\n')
  const back = await fleet.move('--rollback', '--soak', '0', '--waves', '100%')
  equal([back.code, back.result?.counts], [0, { rolled_back: 2, up_to_date: 1 }], back.stderr)
  equal(await fleet.running(), ['v1.0.0', 'v1.0.0', 'v1.0.0'])
  if (!isLong) return
  const forward = await fleet.move('--rollback', '--release', 'v1.1.0', '--soak', '0', '--waves', '100%')
  equal([forward.code, await fleet.running()], [0, ['v1.1.0', 'v1.1.0', 'v1.1.0']])
})

test("a host in the middle of somebody else's operation goes back to what that one went from", async () => {
  await using fleet = await makeStubFleet(1)
  const operation = { id: 'x', kind: 'update', from: 'v1.0.0', to: 'v1.0.5', startedAt: 'y', finishedAt: null }
  await fleet.set('h1', 'running', 'v1.0.5\n')
  await fleet.set('h1', 'operation', JSON.stringify(operation))
  const seen = await heard(fleet, 'h1', 'status --json', 'looked(calls, "host")')
  equal([seen['from'], seen['running'], (seen['inFlight'] as { to: string }).to], ['v1.0.0', 'v1.0.5', 'v1.0.5'])
})

test('hooks stand around each host: one that fails keeps it from being touched, the one after runs always', async () => {
  await using fleet = await makeStubFleet(3)
  const log = join(fleet.folder, 'hooks')
  const hook = `echo "$BATON_WHEN $BATON_HOST" >> ${log}; test $BATON_HOST$BATON_WHEN != h2before`
  const args = ['--waves', '1', '--before-host', hook, '--after-host', `echo "after $BATON_HOST" >> ${log}`]
  const { code, rows } = await fleet.move(...TO, ...args)
  equal([code, rows['h1']?.outcome, rows['h2']?.outcome, rows['h3']?.outcome], [7, 'updated', 'failed', 'untouched'])
  match(rows['h2']?.why ?? '', 'the --before-host hook exited with code 1')
  equal((await readFile(log, 'utf8')).trim().split('\n'), ['before h1', 'after h1', 'before h2', 'after h2'])
  equal(await fleet.done('h2'), [])
})

test('a host twice in a file, no host at all, no inventory, no Ansible: each is said', async () => {
  await using fleet = await makeStubFleet(1)
  const twice = join(fleet.folder, 'twice.yml')
  await writeFile(twice, 'all:\n  hosts:\n    h1: {ansible_connection: local}\n    h1: {ansible_connection: local}\n')
  const doubled = await fleet.move(...TO, '-i', twice)
  is(doubled.code, 2)
  match(doubled.stderr, /duplicate dict key \(h1\)/i)
  if (isLong) is((await fleet.move(...TO, '--limit', 'nobody')).code, 2)
  const none = await fleet.move(...TO, '-i', '/nonexistent/hosts.yml')
  is(none.code, 2)
  match(none.stderr, 'there is no inventory at /nonexistent/hosts.yml')
  const wrong = [
    ['--release', '1.1.0'],
    ['--waves', '0'],
    ['--on-failure', 'some'],
    ['--max-fail-percentage', '100'],
  ]
  for (const flags of isLong ? wrong : wrong.slice(0, 1)) is((await fleet.move(...TO, ...flags)).code, 2)

  const bin = join(fleet.folder, 'bin')
  await mkdir(bin)
  await symlink('/usr/bin/dirname', join(bin, 'dirname')) // of the script itself
  const options = { cwd: fleet.folder, env: { PATH: bin } }
  const without = await rejects(() => exec(SCRIPT, [...TO, '-i', fleet.inventory], options))
  const { code, stderr } = without as Error & { code: number; stderr: string }
  is(code, 3, stderr)
  match(stderr, /^error: ansible-playbook was not found on PATH\nhint: .*apt install ansible-core/)
})

/** What a host says that could move from v1.0.0 to v1.1.0, but for `members`. */
function seenOf(members: Record<string, unknown>): Record<string, unknown> {
  return { route: 'host', platform: 'Linux x86_64', running: 'v1.0.0', from: 'v1.0.0', installed: 'v1.0.0', ...members }
}

async function planned(
  seen: Record<string, unknown>,
  options: Record<string, unknown> = {},
): Promise<{ stop: { why: string; exit: number } | null; outcomes: Record<string, string | null> }> {
  const asked = { asked: 'v1.1.0', release: 'v1.1.0', rollback: false, allow_downgrade: false, check: false }
  const given = [seen, { ...asked, max_fail_percentage: 0, ...options }]
  const { stop, rows } = (await python('judge', 'plan(*given)', given)) as {
    stop: { why: string; exit: number } | null
    rows: Record<string, { outcome: string | null }>
  }
  return { stop, outcomes: Object.fromEntries(Object.entries(rows).map(([host, { outcome }]) => [host, outcome])) }
}

function wavesOf({ events }: Moved): string[][] {
  const begun = (event: FleetEvent) => (event.event === 'wave' && event.step === 'begin' ? [event.hosts] : [])
  return events.flatMap(begun)
}

test.run()
