// @deadlineMs 900000
// What a host answers decides about that host and about nothing else: hosts that say what no host should, that die and come back
// while nobody looks, that were moved on by somebody. The real deploy-fleet.sh, Ansible and playbook.

import { execFile, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { equal, is, match, not } from './assert.ts'
import { eventually } from './lab/systemd.ts'
import { heard, makeStubFleet, noAnsible, outcomeOf, python, type StubFleet } from './lab/stub-fleet.ts'
import { isLong, suite } from './suite.ts'

const test = suite('fleet: answers', { skip: noAnsible, timeoutMs: 200_000 })

const SCRIPT = join(import.meta.dirname, '../deploy/deploy-fleet.sh')
const exec = promisify(execFile)
const TO = ['--release', 'v1.1.0', '--soak', '0'] as const
/** what a terminal would act on, and what turns a text around; no line feed, nor the tab of Ansible's own hint */
const STEERS = /[^\P{C}\n\t]/u

/** A line of JSON from a shell, with these members instead of its own. */
const says = (members: Record<string, unknown>) =>
  `cat <<'END'\n${JSON.stringify({ event: 'result', installed: 'v1.0.0', running: 'v1.0.0', ...members })}\nEND\n`
/** Whoever started us says no more. */
const CUT = 'kill -9 $PPID\n'

test('a name of a host that Ansible would read as a pattern or expand ends the run before anything is done', async () => {
  await using fleet = await makeStubFleet(2)
  const inventory = JSON.parse(await readFile(fleet.inventory, 'utf8')) as { all: { hosts: Record<string, unknown> } }
  const { h1, h2 } = inventory.all.hosts
  const made = join(fleet.folder, 'made')
  const names = ['rack 2', `h{{ lookup('pipe','touch ${made}') }}`, 'a,b', 'a:b']
  for (const name of isLong ? names : names.slice(0, 2)) {
    inventory.all.hosts = { h1, [name]: h2 }
    await writeFile(fleet.inventory, JSON.stringify(inventory))
    for (const more of isLong ? [[], ['--check']] : [[]]) {
      const { code, stderr } = await fleet.move(...TO, ...more)
      is(existsSync(made), false, 'the name was expanded')
      not.equal(code, 0, name)
      match(stderr, 'expected host names without spaces')
      equal(await fleet.done('h1'), [])
    }
  }
})

test('where no host can use the newest release, nothing is moved and the reason is theirs', async () => {
  const problem = { why: 'v1.2.0 cannot be used: release.json is missing', exit: 5 }
  const seen = { h1: { route: 'host', running: 'v1.0.0', problem } }
  const options = { asked: 'latest', release: '', rollback: false, allow_downgrade: false, check: false }
  const { stop } = (await python('judge', 'plan(*given)', [seen, { ...options, max_fail_percentage: 0 }])) as {
    stop: unknown
  }
  equal(stop, { why: `no host could find out the latest release: ${problem.why}`, exit: 5 })
})

test('--pause-until and --unpause move nothing, and the look says which hosts go by themselves', async () => {
  await using fleet = await makeStubFleet(3)
  await fleet.set('h1', 'schedule', '{"mode":"minor","pausedUntil":null,"says":"x"}')
  await fleet.set('h2', 'schedule', '{"mode":"notify","pausedUntil":null}')
  await fleet.set('h3', 'old', 'yes')
  const held = await fleet.move('--pause-until', '2099-12-27')
  match(held.stdout, /"host": "h1".*"byItself": "minor, paused until 2099-12-27T/)
  match(held.stdout, /"host": "h3".*"refused": \{"why": "unknown flag", "exit": 2\}/)
  const ended = await fleet.move('--unpause')
  match(ended.stdout, /"host": "h1".*"byItself": "minor"/)
  for (const wrong of isLong
    ? [
        ['--pause-until', 'soon'],
        ['--pause-until', '2099-12-27', '--unpause'],
        ['--pause-until', '2099-12-27', '--release', 'v1.1.0'],
      ]
    : [['--pause-until', 'soon']])
    is((await fleet.move(...wrong)).code, 2, wrong.join(' '))
})

test('an answer to the look that is none leaves that host out, whatever it is, and no other', async () => {
  const answers: Record<string, string> = {
    h2: says({ running: 5 }),
    h3: says({ latest: 'the newest' }),
    h4: says({ bad: 'no list' }),
    h5: says({ instance: ['x'] }),
    h6: `printf '{"a":%.0s' $(seq 100000); echo\n`,
    h7: `echo '{"event":"result","running":"v1.0'\n`,
    h8: `${says({})}exit 77\n`,
    h9: `${says({})}echo '@began doctor --json'\necho '@ended 0'\n`,
    h10: `printf '{"event":"error","message":"\\\\ud800 \\\\u001b[2J","exit":4}\\n'; exit 4\n`,
    h11: says({ operation: { id: 'x', kind: 'update', from: 'v1.0.0', to: '../..', outcome: null } }),
    h12: `${says({})}${CUT}`,
  }
  await using all = await makeStubFleet(12)
  const refused: Record<string, string> = {}
  for (const [host, text] of Object.entries(answers)) {
    await all.set(host, 'says-status', text)
    const seen = await heard(all, host, 'status --json', 'looked(calls, "host")')
    refused[host] = (seen['refused'] as { why: string } | null)?.why ?? 'taken for an answer'
    is(STEERS.test(refused[host]), false, host)
  }
  equal(
    Object.entries(refused).filter(([, why]) => why === 'taken for an answer'),
    [],
  )
  match(refused['h2'] ?? '', "could not read the host's response: `running`: expected a tag of the form vX.Y.Z, got 5")
  match(refused['h8'] ?? '', 'expected an exit code from 0 to 9, got 77')
  match(refused['h12'] ?? '', 'the answer was cut off')

  await using fleet = await makeStubFleet(3)
  await fleet.set('h2', 'says-status', answers['h10'] ?? '')
  // says nothing at all, for longer than this host may take
  await fleet.set('h3', 'says-status', 'echo $$ >>"$d/waits"; exec sleep 120\n')
  const inventory = JSON.parse(await readFile(fleet.inventory, 'utf8')) as {
    all: { hosts: Record<string, Record<string, unknown>> }
  }
  Object.assign(inventory.all.hosts['h3'] ?? {}, { fleet_answer_timeout: 3 })
  await writeFile(fleet.inventory, JSON.stringify(inventory))
  const args = ['--release', 'latest', '--soak', '0', '--max-fail-percentage', '70']
  const { code, rows, stderr, events } = await fleet.move(...args)
  for (const pid of (await fleet.get('h3', 'waits')).split('\n').filter(Boolean)) process.kill(Number(pid))
  equal(
    [code, rows['h1']?.outcome, rows['h2']?.outcome, rows['h3']?.outcome],
    [4, 'updated', 'refused', 'refused'],
    stderr,
  )
  match(rows['h3']?.why ?? '', 'the host did not answer within 3 s')
  // each line of the report could be read, and is what was said
  equal(await fleet.events(), events)
  is(STEERS.test(stderr), false)
  for (const host of ['h2', 'h3']) equal(await fleet.done(host), [])
})

test('an answer to the move that is none stops the run, and all go back, also where nobody reads what is shown', async () => {
  const forged = { event: 'result', from: 'v1.0.0', to: 'v1.1.0', exit: 0 }
  const answers: Record<string, string> = {
    h2: says({ ...forged, outcome: ['x'] }),
    h3: `echo '@ended 256'\n${CUT}`,
    h4: says({ ...forged, outcome: 'cancelled' }),
    h5: `printf '{"event":"error","outcome":"updated","message":"\\\\u001b]0;x\\\\u0007\\\\u202e\\\\ud800","exit":4}\\n'; exit 4\n`,
    h6: says({ ...forged, outcome: 'updated', from: '{{ 1 }}' }),
  }
  await using fleet = await makeStubFleet(7)
  for (const [host, text] of Object.entries(answers)) await fleet.set(host, 'says-move', text)
  const args = [
    ...TO,
    '--json',
    '--waves',
    '1,5,100%',
    '--on-failure',
    'fleet',
    '-i',
    fleet.inventory,
    '--report',
    fleet.report,
  ]
  const child = spawn(SCRIPT, args, { cwd: fleet.folder, stdio: ['ignore', 'pipe', 'pipe'] })
  const done = outcomeOf(child)
  // the pager was closed
  await eventually('the first wave', async () => (await fleet.events()).some(({ event }) => event === 'wave'), 60_000)
  child.stdout?.destroy()
  const { code, stdout, stderr } = await done
  const result = (await fleet.events()).findLast((event) => event.event === 'result')
  const rows = Object.fromEntries(result?.event === 'result' ? result.hosts.map((row) => [row.host, row.outcome]) : [])
  not.equal(code, 0)
  equal([rows['h1'], rows['h7']], ['taken_back', 'untouched'], JSON.stringify(result))
  equal(await fleet.done('h1'), ['upgrade v1.1.0', 'rollback v1.0.0'])
  // they may have moved: each is told to go back, and is not believed when it says what cannot be
  for (const host of ['h2', 'h3', 'h4', 'h6']) match((await fleet.done(host)).join(), 'rollback v1.0.0', host)
  is(rows['h5'], 'failed')
  equal(await fleet.done('h7'), [])
  is(STEERS.test(stdout) || STEERS.test(stderr), false)
})

test('a host that vanishes in its move is asked again: its wave is taken back with it, or it has moved', async () => {
  for (const share of isLong ? ['0', '50'] : ['0']) {
    await using fleet = await makeStubFleet(3)
    // a link that breaks after the move of h2, and stays down for as many calls as `silent` has lines
    const link = `#!/bin/sh
for line; do :; done
d=${fleet.folder}/h2
case $line in
  *h2/beacon*)
    if [ -s $d/silent ]; then sed -i 1d $d/silent; exit 255; fi
    sh -c "$line"; code=$?
    case $line in *--dry-run*) ;; *upgrade*) [ -e $d/silent ] || { echo 1 >$d/silent; exit 255; } ;; esac
    exit $code ;;
esac
exec sh -c "$line"
`
    await writeFile(join(fleet.folder, 'link'), link, { mode: 0o755 })
    const inventory = JSON.parse(await readFile(fleet.inventory, 'utf8')) as { all: { vars: Record<string, unknown> } }
    inventory.all.vars = { ansible_connection: 'ssh', ansible_ssh_executable: join(fleet.folder, 'link') }
    await writeFile(fleet.inventory, JSON.stringify(inventory))
    const { code, rows, stderr } = await fleet.move(...TO, '--waves', '1,100%', '--max-fail-percentage', share)
    if (share === '0') {
      equal([code, rows['h2']?.outcome, rows['h3']?.outcome], [4, 'taken_back', 'taken_back'], stderr)
      match(stderr, 'h2: the host became unreachable during its update or rollback')
      equal(await fleet.running(), ['v1.1.0', 'v1.0.0', 'v1.0.0'])
    } else {
      equal([code, rows['h2']?.outcome], [0, 'updated'], stderr)
      equal(await fleet.running(), ['v1.1.0', 'v1.1.0', 'v1.1.0'])
    }
  }
})

test('a host that dies in the soak and is there again at its end is no good one', async () => {
  const signs = [
    ['pid', '8'],
    ['restarts', '1'],
    ['started', 'later'],
  ] as const
  for (const [name, value] of isLong ? signs : signs.slice(1, 2)) {
    await using fleet = await makeStubFleet(2)
    const { done } = fleet.start('--release', 'v1.1.0', '--waves', '1', '--soak', '2s')
    await soaking(fleet)
    await fleet.set('h1', name, value)
    const { code, rows, stderr } = await done
    equal([code, rows['h1']?.outcome, rows['h2']?.outcome], [8, 'taken_back', 'untouched'], name)
    match(stderr, 'h1: during the soak: the service restarted unexpectedly')
  }
})

test.long('a container that starts again in the soak is no good one', async () => {
  await using fleet = await makeStubFleet(1)
  const bin = join(fleet.folder, 'bin')
  await mkdir(bin)
  // the container tool, as far as a fleet hears of it
  const docker = `#!/bin/sh
cd ${fleet.folder}/h1
say() { printf '{"event":"result","container":"c","digest":"sha256:ab","healthy":true,"message":null,"outcome":%s,"exit":0}\\n' "$1"; }
running=$(cat running) before=v1.0.0
case $* in
  *--status*) say "\\"status\\",\\"from\\":null,\\"to\\":\\"$running\\",\\"containerId\\":\\"ab\\",\\"startedAt\\":\\"$(cat started)\\"" ;;
  *--dry-run*) say '"planned","would":"updated","from":"v1.0.0","to":"v1.1.0"' ;;
  *--rollback*) echo v1.0.0 >running; say '"rolled_back","from":"v1.1.0","to":"v1.0.0"' ;;
  *) echo v1.1.0 >running; say '"updated","from":"v1.0.0","to":"v1.1.0"' ;;
esac
`
  await writeFile(join(bin, 'docker'), docker, { mode: 0o755 })
  await fleet.set('h1', 'started', '2026-01-01T00:00:00.1Z')
  const c1 = {
    ansible_connection: 'local',
    route: 'container',
    fleet_container: 'c',
    fleet_image: 'registry.example/x:deploy',
  }
  await writeFile(fleet.inventory, JSON.stringify({ all: { hosts: { c1 } } }))
  const path = process.env['PATH']
  process.env['PATH'] = `${bin}:${path}`
  const { done } = fleet.start('--release', 'v1.1.0', '--soak', '2s')
  process.env['PATH'] = path
  await soaking(fleet)
  await fleet.set('h1', 'started', '2026-01-01T00:00:09.1Z')
  const { code, rows, stderr } = await done
  equal([code, rows['c1']?.outcome, await fleet.running()], [8, 'taken_back', ['v1.0.0']], stderr)
  match(stderr, 'c1: during the soak: the service restarted unexpectedly')
})

test.long('a host that goes down in a soak ends it there and then', async () => {
  await using fleet = await makeStubFleet(2)
  const { done } = fleet.start('--release', 'v1.1.0', '--waves', '1', '--soak', '60s')
  await soaking(fleet)
  await fleet.set('h1', 'asked', '')
  await fleet.set('h1', 'down', '9')
  await eventually('two questions', async () => (await fleet.get('h1', 'asked')).split('\n').length >= 2, 90_000)
  // it was asked while the soak went on, and is not called down for being silent once
  is((await fleet.events()).at(-1)?.event, 'wave')
  const { code, rows, stderr } = await done
  equal([code, rows['h1']?.outcome, rows['h2']?.outcome], [8, 'taken_back', 'untouched'], stderr)
  match(stderr, 'h1: during the soak: the service is down')
})

test.long(
  'who runs something newer is not taken back without a word, neither seen in the look nor after it',
  async () => {
    await using fleet = await makeStubFleet(2)
    await fleet.set('h1', 'running', 'v1.2.0')
    const refused = await fleet.move(...TO)
    is(refused.code, 7)
    match(
      refused.stderr,
      'h1 cannot be updated: the host runs v1.2.0, which is newer than v1.1.0; to move it anyway, use `--allow-downgrade`',
    )
    equal(await fleet.running(), ['v1.2.0', 'v1.0.0'])
    const allowed = await fleet.move(...TO, '--allow-downgrade')
    equal([allowed.code, await fleet.running()], [0, ['v1.1.0', 'v1.1.0']], allowed.stderr)

    // somebody moves the second one on while the first is at it
    for (const host of fleet.names) await fleet.set(host, 'running', 'v1.0.0')
    await fleet.set('h1', 'delay', '3')
    const { done } = fleet.start(...TO, '--waves', '1', '--on-failure', 'none')
    await eventually('the first at it', async () => (await fleet.events()).at(-1)?.event === 'wave', 60_000)
    await fleet.set('h2', 'running', 'v1.2.0')
    const { code, rows } = await done
    equal([code, rows['h1']?.outcome, rows['h2']?.outcome], [7, 'updated', 'failed'])
    match(rows['h2']?.why ?? '', 'the host now runs v1.2.0')
    is((await fleet.running())[1], 'v1.2.0')
  },
)

test.long('where sudo is missing, that is what is said; where the disk is full, it is the disk', async () => {
  await using fleet = await makeStubFleet(1, {
    ansible_become: true,
    ansible_become_user: 'daemon',
    ansible_become_exe: '/nowhere/sudo',
  })
  const { code, stderr } = await fleet.move(...TO)
  is(code, 7)
  match(stderr, /h1 cannot be updated: no command could be started on the host: .*\/nowhere\/sudo.* not found/)

  await using full = await makeStubFleet(1)
  await symlink('/dev/full', full.report)
  const stopped = await full.move(...TO)
  is(stopped.code, 7, stopped.stderr)
  match(stopped.stderr, /error: the report .*report\.jsonl cannot be written: the disk is full\nhint: /)
  equal(await full.done('h1'), [])
})

test('what runs where is said without a release, and asks nothing else', async () => {
  await using fleet = await makeStubFleet(2)
  await fleet.set('h2', 'running', 'v1.1.0')
  const args = ['--check', '-i', fleet.inventory, '--report', fleet.report]
  const { stdout } = await exec(SCRIPT, args, { cwd: fleet.folder })
  match(stdout, /^h1 +v1\.0\.0 +v1\.0\.0 .*\nh2 +v1\.1\.0 +v1\.1\.0 .*\n/m)
  equal(new Set((await fleet.get('h1', 'asked')).split('\n')), new Set(['status --json']))
  is((await fleet.move()).code, 2)
  if (!isLong) return
  await fleet.set('h2', 'down', '9')
  const down = await fleet.move('--check')
  equal([down.code, down.result?.outcome, down.result?.look], [9, 'looked', ['h2']])
})

async function soaking(fleet: StubFleet): Promise<void> {
  const isSoaking = async () => (await fleet.events()).some((event) => event.event === 'wave' && event.step === 'soak')
  await eventually('the soak', isSoaking, 60_000)
}

test.run()
