// @long
// Two at once, on a systemd host: a shell and the panel, a shell and a deployment, with and without a running service. One
// works; the other is told who holds the lock since when, or waits its turn where it was told to.

import { suite } from './suite.ts'
import { equal, is, match } from './assert.ts'
import { bootWithReleases, eventsIn, EXECUTABLE, type FeedHost, put } from './lab/managed.ts'
import { eventually, noHosts } from './lab/systemd.ts'

const test = suite('systemd: turns', { skip: noHosts, timeoutMs: 120_000 })
const SLOW_START = '/etc/systemd/system/beacon.service.d/slow.conf'

let host: FeedHost

test.before(async () => {
  host = await bootWithReleases([{ tag: 'v1.0.0' }, { tag: 'v1.1.0' }, { tag: 'v1.2.0' }])
  // an operation must last longer than a command needs to begin on a busy machine
  await host.install({ probation: '12s' })
})
test.after(async () => await host.off())

test('the panel is first: who gives up at once ends with 6, who does not waits', async () => {
  const { status, body } = await host.ask('POST', '', { tag: 'v1.1.0' })
  is(status, 202, body)
  // all at once: on a busy machine they need seconds to begin
  const [shell, hasty, patient] = await Promise.all([
    host.cli('upgrade', 'v1.1.0', '--lock-timeout', '0'),
    host.deploy('--release', 'v1.1.0', '--lock-timeout', '0'),
    host.deploy('--release', 'v1.1.0', '--json', '--lock-timeout', '120s'),
  ])
  is(shell.code, 6, shell.stderr)
  match(shell.stderr, /update .* since 20\d\d-/)
  is(hasty.code, 6, hasty.stderr)
  is(patient.code, 0, patient.stderr)
  const [note, result] = ['note', 'result'].map((name) => eventsIn(patient.stdout).find(({ event }) => event === name))
  match(String(note?.['message']), /^waiting at most \S+: .* since 20\d\d-/)
  equal([result?.['outcome'], result?.['from']], ['up_to_date', 'v1.1.0'])
  const { instance, history } = await host.status()
  is(instance.version, 'v1.1.0')
  is(history.filter(({ outcome }) => outcome === 'updated').length, 1)
})

test('a shell is first: the panel is told 409, and since when', async () => {
  const shell = host.cli('upgrade', 'v1.2.0')
  const inFlight = await eventually('an operation in flight', async () => {
    const now = await host.status()
    return now.state === 'in_flight' && now.operation
  })
  for (const [target, given] of [
    ['', { tag: 'v1.0.0' }],
    ['/rollback', null],
  ] as const) {
    const { status, body } = await host.ask('POST', target, given)
    is(status, 409, body)
    const problem = JSON.parse(body) as Record<string, unknown>
    is(problem['code'], 'update_in_flight')
    match(body, /started at 20\d\d-/)
  }
  is((await shell).code, 0)
  const { operation, instance } = await host.status()
  equal([operation?.id, instance.version], [inFlight.id, 'v1.2.0'])
})

test.long(
  'nothing runs: the second shell does not stop what the first one is starting, and one that waits finds it running',
  async () => {
    is((await host.cli('stop')).code, 0)
    await put(host, SLOW_START, '[Service]\nExecStartPre=/bin/sleep 12\n')
    await host.ok('systemctl', 'daemon-reload')
    const first = host.cli('upgrade', 'v1.1.0')
    await eventually(
      'the service starting',
      async () => (await host.show('ActiveState'))['ActiveState'] === 'activating',
    )
    const patient = host.deploy('--release', 'v1.1.0', '--lock-timeout', '60s')
    const second = await host.cli('upgrade', 'v1.1.0', '--lock-timeout', '0')
    is(second.code, 6, second.stderr)
    match(second.stderr, /held by beacon upgrade \(pid \d+, since 20\d\d-/)
    const { code, stderr } = await first
    is(code, 0, stderr)
    const waited = await patient
    is(waited.code, 0, waited.stderr)
    match(waited.stderr, /waiting at most \S+: an operation is running: the lock is held by beacon upgrade/)
    equal(await host.show('ActiveState', 'NRestarts'), { ActiveState: 'active', NRestarts: '0' })
    is((await host.status()).instance.version, 'v1.1.0')
    is(await host.ok(EXECUTABLE, '--version'), 'beacon v1.1.0\n')
  },
)

test.run()
