// @deadlineMs 600000
// A signed feed from end to end on a real host: executables built with `npm run build -- --root`, metadata by `npm run trust`,
// installed by install.sh, updated over a folder and over GitHub's API; and the way there from an executable without a root.

import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { PROJECT } from '../deploy/make/place.ts'
import { equal, is, match, not } from './assert.ts'
import { publishTo, releases, scriptRelease } from './fixtures/releases.ts'
import { bootWithFeed, eventsIn, EXECUTABLE, type FeedHost, setUpdate } from './lab/managed.ts'
import { noHosts } from './lab/systemd.ts'
import { suite } from './suite.ts'

const test = suite('systemd: signed', { skip: noHosts, timeoutMs: 240_000 })

let host: FeedHost
let home = ''

test.before(async () => {
  home = await mkdtemp(join(tmpdir(), 'baton-signed-'))
  host = await bootWithFeed(async (made) => {
    await publishTo(made, await releases([{ tag: 'v0.9.0' }])) // built without a root
    await trust('init', '--service', 'beacon', '--dir', made)
    for (const tag of ['v1.0.0', 'v1.1.0']) {
      const root = join(made, 'verified', '1.root.json')
      await script('deploy/build.ts', tag, '--root', root, '--out', made, '--compress', 'fast', '--quiet')
    }
    await trust('sign', '--dir', made)
    // what somebody else puts in their place
    const others = ['v1.1.0', 'v9.9.9'].map(async (tag) => await scriptRelease(tag, 'dies-after-1s'))
    await publishTo(join(made, 'other'), await Promise.all(others))
  })
})
test.after(async () => {
  await host.off()
  await rm(home, { recursive: true, force: true })
})

test('install.sh fetches its own release by its own sum; another one is verified by the executable, or not installed', async () => {
  const asked = ['install', '-y', '--no-start', '--json']
  const genuine = await covered('v1.1.0', 'other/v1.1.0')
  const refused = await host.installer('v1.0.0', ...asked, 'v1.1.0')
  is(refused.code, 5, refused.stderr)
  match(refused.stderr, /v1\.1\.0.*release\.json/s)
  equal((await host.run(['ls', '/opt/beacon', '/usr/local/lib/beacon'])).stdout, '') // nothing was installed
  await genuine[Symbol.asyncDispose]()
  const latest = await host.installer('v1.0.0', ...asked, 'latest')
  is(latest.code, 0, latest.stderr)
  is((await host.ok(EXECUTABLE, '--version')).trim(), 'beacon v1.1.0')
  is(await host.ok('sh', '-c', 'ls -d /tmp/*install* 2>/dev/null || true'), '') // nothing is left
  is((await host.cli('uninstall', '--purge', '--confirm', 'beacon', '-y')).code, 0)
})

test.long(
  'without a root it says `not signed` wherever an operator looks, once in the log; its update to one with a root is the way',
  async () => {
    await host.install({ probation: '500ms' }, 'v0.9.0')
    match((await host.cli('status')).stdout, /^feed +not signed/m)
    match((await host.cli('check')).stdout, /^feed +not signed/m)
    match((await host.cli('doctor')).stdout, /^(?:warning|ok) +trust +not signed/m)
    is((await host.status()).trust.signed, false)
    const said = (await host.ok('journalctl', '-u', 'beacon', '-o', 'cat', '--no-pager')).split('\n')
    is(said.filter((line) => line.includes('not signed')).length, 1)

    is((await host.cli('upgrade', 'v1.0.0')).code, 0)
    is((await host.status()).trust.signed, true)
    // root's own command is root's to renew, and has the root from then on
    const isCopyOf = /^ok +command +\/usr\/local\/bin\/beacon is a copy of (\S+); `beacon install TAG` renews it/m
    is(isCopyOf.exec((await host.cli('doctor')).stdout)?.[1], 'v0.9.0')
    is((await host.cli('install', 'v1.0.0', '-y')).code, 0)
    is(isCopyOf.exec((await host.cli('doctor')).stdout)?.[1], 'v1.0.0')
    match((await host.cli('status')).stdout, /^feed +signed, valid until 20\d\d-/m)
    match((await host.cli('doctor')).stdout, /^ok +trust +signed, valid until 20\d\d-/m)
  },
)

test.long(
  'over a folder: what is signed is installed, what is not is refused with 5 and changes nothing; back without feed or metadata',
  async () => {
    const before = await host.ok('sha256sum', EXECUTABLE)
    await host.ok('mkdir', '/srv/feed/nothing')
    {
      await using _tampered = await covered('v1.1.0', 'other/v1.1.0')
      const { code, stdout } = await host.cli('upgrade', 'v1.1.0', '--json')
      is(code, 5, stdout)
      is(eventsIn(stdout).at(-1)?.['code'], 'release_unusable')
    }
    // without a key: genuine metadata, and the newest release kept back. Nobody calls that up to date
    for (const by of ['nothing', 'other/v1.1.0']) {
      await using _keptBack = await covered('v1.1.0', by)
      const [check, upgrade] = [await host.cli('check', '--json'), await host.cli('upgrade', '--json')]
      equal([check.code, upgrade.code], [5, 5], check.stdout + upgrade.stdout)
      const { latest, updateAvailable, problem } = eventsIn(check.stdout).at(-1) ?? {}
      equal([latest, updateAvailable, (problem as { code: string }).code], [null, false, 'release_unusable'])
      match((await host.cli('check')).stdout, /^latest +unknown: v1\.1\.0 cannot be used: /m)
      match((await host.cli('doctor')).stdout, /^warning +feed .*v1\.1\.0 cannot be used: /m)
    }
    {
      await host.ok('cp', '-a', '/srv/feed/other/v9.9.9', '/srv/feed/v9.9.9')
      equal(eventsIn((await host.cli('upgrade', 'v9.9.9', '--json')).stdout).at(-1)?.['code'], 'not_signed')
    }
    is(await host.ok('sha256sum', EXECUTABLE), before)
    is((await host.cli('upgrade')).code, 0)
    is((await host.status()).instance.version, 'v1.1.0')

    await using _without = await covered('verified', 'nothing')
    const without = await host.cli('upgrade', '--json')
    is(without.code, 5, without.stderr)
    is(eventsIn(without.stdout).at(-1)?.['code'], 'metadata_missing')
    is((await host.cli('rollback')).code, 0)
    is((await host.status()).instance.version, 'v1.0.0')
  },
)

test.long("where nothing runs root's own command holds to the same signatures", async () => {
  is((await host.cli('stop')).code, 0)
  {
    await using _tampered = await covered('v1.1.0', 'other/v1.1.0')
    is((await host.cli('upgrade', 'v1.1.0')).code, 5)
  }
  is((await host.cli('upgrade')).code, 0)
  is((await host.status()).instance.version, 'v1.1.0')
  is((await host.cli('uninstall', '--purge', '--confirm', 'beacon', '-y')).code, 0)
})

// in CI test/trust-publisher.test.ts pushes there, and its hosts follow
test.long("over GitHub's API: pushed, installed, updated; what is yanked there is not offered any more", async () => {
  await using hub = await host.serve({ dir: await hubFolder(), writeToken: 'sesame' })
  await trustThere('push', hub.feed, '--dir', host.folder)
  const install = (...args: string[]) =>
    host.run(['sh', '/srv/feed/v1.0.0/install.sh', '-y', '--feed', hub.feed, ...args])
  const first = await install()
  is(first.code, 0, first.stderr)
  await setUpdate(host, { probation: '500ms' })
  await host.ok('systemctl', 'restart', 'beacon')
  is((await host.cli('upgrade')).code, 0)
  is((await host.status()).instance.version, 'v1.1.0')
  is((await host.cli('rollback')).code, 0)

  await trust('yank', 'v1.1.0', '--why', 'loses rows', '--dir', host.folder)
  await trustThere('push', hub.feed, '--dir', host.folder)
  const { stdout } = await host.cli('upgrade', 'v1.1.0', '--json')
  equal(eventsIn(stdout).at(-1)?.['code'], 'yanked')
  const check = await host.cli('check')
  is(check.code, 0) // whoever signs the feed has said so
  match(check.stdout, /^latest +v1\.0\.0\nyanked +v1\.1\.0: loses rows$/m)
  match((await host.cli('releases')).stdout, /^v1\.1\.0 .*yanked: loses rows$/m)
  not.match(await host.ok('journalctl', '--no-pager'), 'sesame')
})

test.run()

/** Of the host's feed: one folder stands in the place of another. Whoever can write to a feed replaces all of it together. */
async function covered(name: string, by: string): Promise<AsyncDisposable> {
  await host.ok('mount', '--bind', `/srv/feed/${by}`, `/srv/feed/${name}`)
  return { [Symbol.asyncDispose]: async () => void (await host.ok('umount', `/srv/feed/${name}`)) }
}

/** What a repository on GitHub has before anything is signed. */
async function hubFolder(): Promise<string> {
  const hub = join(home, 'hub')
  const tags = (await readdir(host.folder)).filter((name) => /^v\d/.test(name))
  await mkdir(hub)
  await promisify(execFile)('cp', ['-a', ...[...tags, 'releases.json'].map((name) => join(host.folder, name)), hub])
  return hub
}

const trust = (...args: string[]) => script('deploy/trust.ts', ...args)

async function script(file: string, ...args: string[]): Promise<string> {
  return (
    await promisify(execFile)(process.execPath, [join(PROJECT, file), ...args], { env: maintainer(), cwd: PROJECT })
  ).stdout
}

/** The maintainer works in the host's network, where the server is. */
async function trustThere(...args: string[]): Promise<void> {
  const [command = '', ...before] = await host.network()
  const env = { ...maintainer(), GH_ENTERPRISE_TOKEN: 'sesame' }
  await promisify(execFile)(command, [...before, process.execPath, join(PROJECT, 'deploy/trust.ts'), ...args], {
    env,
    cwd: PROJECT,
  })
}

function maintainer(): NodeJS.ProcessEnv {
  return { ...process.env, XDG_CONFIG_HOME: home, BATON_TRUST_PASSPHRASE: 'correct horse battery staple' }
}
