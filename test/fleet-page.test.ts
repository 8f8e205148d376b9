// @long @deadlineMs 900000
// docs/operator/fleet.md, as an operator would follow it: its inventory and every command of it, read from the page and run in order, on three
// hosts with sshd and without Python, between HAProxy and Prometheus. What no page can know is put in: addresses, a key, where the releases are;
// and a soak of a second.

import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../deploy/make/place.ts'
import { equal, is, match } from './assert.ts'
import { haproxy, prometheusOf } from './fleet/around.ts'
import { setFault } from './fleet/scenarios.ts'
import { ANSIBLE, bootFleet, FEED, type Fleet } from './lab/fleet.ts'
import { netnsProblem } from './lab/netns.ts'
import { commandsOf } from './lab/page.ts'
import { noAnsible } from './lab/stub-fleet.ts'
import { noHosts, type Ran } from './lab/systemd.ts'
import { suite } from './suite.ts'

const test = suite('fleet’s page', { skip: noHosts ?? netnsProblem() ?? noAnsible, timeoutMs: 600_000 })

const PAGE = 'docs/operator/fleet.md'
const RELEASES = 'https://releases.example/beacon'

test('all are installed, looked at and moved; a wave that fails is taken back and tried again, with a gate and behind a load balancer', async () => {
  await using fleet = await bootFleet(3, [{ tag: 'v1.0.0' }, { tag: 'v1.1.0', fault: 'of-the-host' }])
  const follow = await followerOf(fleet)
  const [install = '', ...look] = [
    ...(await commandsOf(PAGE, 'What it takes')),
    ...(await commandsOf(PAGE, 'Look first')),
  ]
  // their settings stay: the lab's probation is short
  for (const host of fleet.hosts) await host.ok('beacon', 'uninstall', '-y')
  await follow(install.replaceAll('v1.0.0', 'v9.9.9'), 2) // a host that cannot fetch the script has not changed, and is counted
  await follow(install)
  equal(await fleet.running(), ['v1.0.0', 'v1.0.0', 'v1.0.0'])
  match((await follow(look.join(''))).stdout, /web1 +v1\.0\.0 [^]*^planned v1\.1\.0: 3 untouched$/m)

  const [, second] = fleet.hosts
  if (second !== undefined) await setFault(second, 'dies-after-1s')
  const [move = ''] = await commandsOf(PAGE, 'Move')
  await follow(move, 8)
  equal(await fleet.running(), ['v1.1.0', 'v1.0.0', 'v1.0.0'])
  if (second !== undefined) await setFault(second, null)
  const [again = ''] = await commandsOf(PAGE, 'Again')
  await follow(again)
  equal(await fleet.running(), ['v1.1.0', 'v1.1.0', 'v1.0.0'])

  await using prometheus = await prometheusOf(fleet, fleet.hosts)
  const [gate = ''] = await commandsOf(PAGE, 'A gate')
  await follow(gate.replace('http://prometheus:9090', prometheus.url))
  equal(await fleet.running(), ['v1.1.0', 'v1.1.0', 'v1.1.0'])

  for (const host of fleet.hosts) await host.ok('beacon', 'rollback')
  await using proxy = await haproxy(fleet, (number) => `web${number}`)
  const load = proxy.load({ clients: 2, thinkMs: [20, 60] })
  const [drained = ''] = await commandsOf(PAGE, 'A load balancer')
  await follow(drained.replace('/run/haproxy/admin.sock', proxy.socket))
  is((await load.stop()).lost, 0)
  equal(await fleet.running(), ['v1.1.0', 'v1.1.0', 'v1.1.0'])
})

test.run()

/** Runs commands of the page on the controller, in a folder with the page's inventory. They end with `code`. */
async function followerOf(fleet: Fleet): Promise<(commands: string, code?: number) => Promise<Ran>> {
  const { room } = fleet
  const page = await readFile(join(PROJECT, PAGE), 'utf8')
  const [, shown = ''] = /^```yaml\n([^]*?)^```$/m.exec(page) ?? []
  const inventory = fleet.hosts
    .reduce((text, { address }, at) => text.replace(`10.0.0.1${at + 1}}`, `${address}}`), shown)
    .replace('ansible_user: root', `ansible_user: root, ansible_ssh_private_key_file: ${room.key}`)
  await writeFile(join(room.folder, 'hosts.yml'), inventory)
  return async (commands, expected = 0) => {
    const filled = commands
      .replaceAll(RELEASES, `file://${FEED}`)
      .replace(' --soak 5m', '')
      .replaceAll('deploy/deploy-fleet.sh', 'deploy/deploy-fleet.sh --soak 1s')
      .replaceAll('deploy/', `${PROJECT}/deploy/`)
    const ran = await room.run(['sh', '-eux', '-c', `cd ${room.folder}\n${filled}`], {
      env: ANSIBLE,
      timeoutMs: 300_000,
    })
    is(ran.code, expected, `${commands}${ran.stdout.slice(-3000)}\n${ran.stderr.slice(-3000)}`)
    return ran
  }
}
