// What the cage of a rehearsal may use: set as its unit says, and in force as far as this host can enforce it. Where it cannot (no
// cgroup controllers, no reflink), the test says that the effect was not seen.

import { equal, is } from './assert.ts'
import { bootWithFeed } from './lab/managed.ts'
import { publishLedgers } from './lab/ledger.ts'
import { eventually, noHosts } from './lab/systemd.ts'
import { suite } from './suite.ts'

const test = suite('systemd: cage', { skip: noHosts, timeoutMs: 200_000 })
const [STATE, UNIT] = ['/var/lib/beacon', 'beacon-trial.service']

/** As `systemctl show` says it. */
const LIMITS: Record<string, string> = {
  MemoryMax: '2147483648',
  MemorySwapMax: '0',
  TasksMax: '512',
  LimitNPROC: '512',
  LimitDATA: '3221225472',
  LimitFSIZE: '17179869184',
  LimitCORE: '0',
  CPUWeight: '20',
  IOWeight: '20',
  Nice: '5',
  OOMScoreAdjust: '900',
  RuntimeMaxUSec: '3h 10min',
  TimeoutStopUSec: '10s',
}
/** Files of the cage's cgroup, which are there if the host has the controller. */
const ENFORCED = {
  'memory.max': '2147483648',
  'memory.swap.max': '0',
  'pids.max': '512',
  'cpu.weight': '20',
  'io.weight': 'default 20',
}

test('each limit is set, and seen in force while a release is tried, or told to be unseen on this host', async () => {
  await using host = await bootWithFeed((out) => publishLedgers(out, ['v1.0.0', 'v1.1.0']))
  await host.install({ trial: 'auto' })
  const shown = async (...names: string[]) => {
    const said = await host.ok('systemctl', 'show', UNIT, `--property=${names.join(',')}`)
    return Object.fromEntries(
      said
        .trim()
        .split('\n')
        .map((line) => line.split('=') as [string, string]),
    )
  }
  equal(await shown(...Object.keys(LIMITS)), LIMITS)
  await host.ok('sh', '-c', `echo 'return new Promise((resolve) => setTimeout(resolve, 60000))' >${STATE}/migration.js`)
  is((await host.ask('POST', '', { tag: 'v1.1.0' })).status, 202)
  await eventually('the candidate', async () => {
    return (await host.run(['pgrep', '-f', '[.]beacon[.]partial serve'])).code === 0
  })
  const unseen: string[] = []
  const { ControlGroup = '' } = await shown('ControlGroup')
  for (const [file, value] of Object.entries(ENFORCED)) {
    const { code, stdout } = await host.run(['cat', `/sys/fs/cgroup${ControlGroup}/${file}`])
    if (code === 0) is(stdout.trim(), value, file)
    else unseen.push(file)
  }
  const clone = ['cp', '--reflink=always', `${STATE}/ledger.db`, `${STATE}/clone.db`]
  if ((await host.run(clone)).code !== 0) unseen.push('a copy by reflink')
  await host.cli('cancel')
  const { outcome } = await eventually('the end', async () => {
    const { operation } = await host.status()
    return operation === null || operation.outcome === null ? null : operation
  })
  is(outcome, 'cancelled')
  if (unseen.length > 0) process.stdout.write(`  set, but its effect not seen on this host: ${unseen.join(', ')}\n`)
})

test.run()
