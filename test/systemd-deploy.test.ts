// A deployment to a real host by the scripts of a checkout: of a release, and from source. Where it must not or cannot be: the right
// exit code, and a message that says why.

import { join } from 'node:path'
import { suite } from './suite.ts'
import { equal, is, match, not } from './assert.ts'
import { PROJECT } from '../deploy/make/place.ts'
import { bootWithReleases, eventsIn, EXECUTABLE, type FeedHost, put, setUpdate } from './lab/managed.ts'
import { eventually, noHosts, type Ran } from './lab/systemd.ts'

const test = suite('systemd: deploy', { skip: noHosts, timeoutMs: 180_000 })
// longer than a release that exits after half a second takes to exit, on a busy machine too
const SHORT = { probation: '2s', hangTimeout: '3s' }

let host: FeedHost

test.before(async () => {
  host = await bootWithReleases([{ tag: 'v1.0.0' }, { tag: 'v1.1.0' }, { tag: 'v1.2.0', fault: 'exits-in-probation' }])
})
test.after(async () => await host.off())

test('from source where there is no systemd: said before anything is built, with a flag to give', async () => {
  await host.ok('git', 'clone', '--quiet', '--no-hardlinks', PROJECT, '/root/clone')
  await host.ok('ln', '-s', join(PROJECT, 'node_modules'), '/root/clone/node_modules')
  await host.ok('git', '-C', '/root/clone', 'tag', 'v0.1.0')
  const refused = await fromSource()
  is(refused.code, 3, refused.stderr)
  match(refused.stderr, 'hint: install without systemd: `--no-service`')
  not.match(refused.stderr, 'worktree')
})

test('deploy-systemd.sh installs, upgrades, goes back by itself where the health gate fails, and rolls back when asked', async () => {
  const { deploy } = host
  await put(host, EXECUTABLE, 'somebody else put this here\n')
  const refused = await deploy('--release', 'v1.0.0', '--feed', host.feed, '--json')
  is(refused.code, 7, refused.stderr)
  const why = eventsIn(refused.stdout).at(-1)
  equal([why?.['event'], why?.['code'], why?.['exit']], ['error', 'refused', 7])
  await host.ok('rm', '-r', '/opt/beacon')
  const installed = await deploy('--release', 'v1.0.0', '--feed', host.feed)
  is(installed.code, 0, installed.stderr)
  await setUpdate(host, SHORT)
  await host.ok('systemctl', 'restart', 'beacon')
  await eventually('an answer', async () => (await host.status()).state === 'idle')
  const dry = await deploy('--release', 'v1.1.0', '--dry-run')
  match(dry.stdout, 'update beacon from v1.0.0 to v1.1.0')
  is((await host.status()).instance.version, 'v1.0.0')
  const bad = await deploy(
    '--release',
    'v1.1.0',
    '--health-url',
    'http://127.0.0.1:8080/nothing-here',
    '--health-timeout',
    '2s',
  )
  is(bad.code, 8, bad.stderr)
  match(bad.stderr, 'v1.0.0 is running again')
  is((await host.status()).instance.version, 'v1.0.0')
  // the release has failed the operator's own question: the cause is in the status, and only its tag tries it again
  match(
    (await host.cli('status')).stdout,
    /^last +rollback v1\.1\.0 to v1\.0\.0: .* \(expected 2xx from http:\S+nothing-here, got 404\)$/m,
  )
  match((await host.cli('releases')).stdout, /^v1\.1\.0 .*bad: expected 2xx from http:\S+nothing-here, got 404 /m)
  const good = await deploy('--release', 'v1.1.0', '--health-url', 'http://127.0.0.1:8080/healthz', '--json')
  is(good.code, 0, good.stderr)
  const last = eventsIn(good.stdout).at(-1)
  equal([last?.['event'], last?.['outcome'], last?.['to'], last?.['exit']], ['result', 'updated', 'v1.1.0', 0])
  is((await deploy('--release', 'v1.2.0')).code, 8)
  is((await deploy('--rollback')).code, 0)
  is((await host.status()).instance.version, 'v1.0.0')
  is((await deploy('--release', 'v9.9.9')).code, 4)
  is((await deploy()).code, 2)
})

test.long('deploy-systemd.sh ends with 9 where neither the new release nor the previous one runs', async () => {
  const path = '/etc/systemd/system/beacon.service.d/never.conf'
  const deploy = (...args: string[]) => host.deploy('--release', 'v1.1.0', '--health-timeout', '5s', ...args)
  is((await host.cli('stop')).code, 0)
  await put(host, path, '[Service]\nExecStartPre=/bin/false\n')
  await host.ok('systemctl', 'daemon-reload')
  const down = await deploy('--json')
  is(down.code, 9, down.stderr)
  match(down.stderr, /v1\.1\.0 failed: .*, and v1\.0\.0 does not start either/)
  const last = eventsIn(down.stdout).at(-1)
  equal([last?.['event'], last?.['code'], last?.['exit']], ['error', 'service_down', 9])
  is(await host.ok(EXECUTABLE, '--version'), 'beacon v1.0.0\n')
  is((await host.cli('status')).code, 9)
  // what kept it from starting is gone: the release is not to blame, and may be deployed again
  await host.ok('rm', path)
  await host.ok('systemctl', 'daemon-reload')
  const again = await deploy()
  is(again.code, 0, again.stderr)
  is((await host.status()).instance.version, 'v1.1.0')
  // the release is in place already, and what the operator asks for in its name does not answer
  const same = await deploy('--health-url', 'http://127.0.0.1:8080/nothing-here', '--health-timeout', '1s')
  is(same.code, 9, same.stderr)
  is((await host.cli('stop')).code, 0)
  const stopped = await deploy()
  is(stopped.code, 0, stopped.stderr)
  is((await host.status()).instance.version, 'v1.1.0')
})

test.long('a purge removes the user that the install made, and ends the manager of that user once', async () => {
  // one that notes what it is asked, in front of the host's own
  const noting = '#!/bin/sh\necho "$*" >>/run/loginctl.asked\nexec /usr/bin/loginctl "$@"\n'
  await put(host, '/usr/local/bin/loginctl', noting)
  await host.ok('chmod', '755', '/usr/local/bin/loginctl')
  is((await host.cli('uninstall', '--purge', '--confirm', 'beacon', '-y')).code, 0)
  is((await host.run(['id', 'beacon'])).code, 1)
  is((await host.ok('cat', '/run/loginctl.asked')).trim(), 'disable-linger beacon')
})

test.long(
  'with that flag it comes as far as the install, which finds a stranger’s file; the build is not said to have failed',
  async () => {
    await put(host, EXECUTABLE, 'somebody else put this here\n')
    const built = await fromSource('--no-service')
    is(built.code, 7, built.stderr)
    match(built.stderr, 'found /opt/beacon/beacon, which root owns')
    match(built.stderr, /^done .*npm run build/m)
    not.match(built.stderr, /^failed/m)
    await host.ok('rm', '-r', '/opt/beacon')
  },
)

function fromSource(...args: string[]): Promise<Ran> {
  const bare = 'mount -t tmpfs tmpfs /run/systemd && exec "$0" "$@"' // systemctl finds nobody to ask
  const script = ['/root/clone/deploy/deploy-source.sh', '--release', 'v0.1.0', '--remote', 'none']
  return host.run(['unshare', '--mount', 'sh', '-c', bare, ...script, ...args])
}

// the guide that test/guides.test.ts follows installs from a clone, too
test.long(
  'from a clone in the home of root, without any release: it builds one, and the sandboxed service finds it',
  async () => {
    await host.ok('rm', '-rf', '/root/clone/dist')
    const { code, stderr } = await host.run(['sh', '/root/clone/install.sh', '--clone', '/root/clone', '-y'])
    is(code, 0, stderr)
    const tag = (await host.status()).instance.version
    match((await host.cli('check')).stdout, `latest     ${tag}`)
    is((await host.cli('doctor')).code, 0)
    is((await host.cli('stop')).code, 0)
    match((await host.cli('upgrade')).stdout, 'is up to date')
  },
)

test.run()
