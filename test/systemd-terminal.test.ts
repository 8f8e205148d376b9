// @long
// A person at a terminal, on a systemd host: install.sh comes through a pipe, so it asks at /dev/tty; nothing happens before
// the answer; what takes long is drawn. The terminal is a real one, made by script(1).

import { suite } from './suite.ts'
import { is, match, not } from './assert.ts'
import { bootWithReleases, type FeedHost, setUpdate } from './lab/managed.ts'
import { noHosts, type Ran } from './lab/systemd.ts'

const test = suite('systemd: terminal', { skip: noHosts, timeoutMs: 120_000 })

const ESCAPE = '\x1b'
const PIPED = 'cat /srv/feed/v1.0.0/install.sh | sh -s -- --feed /srv/feed'

let host: FeedHost

test.before(async () => {
  host = await bootWithReleases([{ tag: 'v1.0.0' }, { tag: 'v1.1.0' }])
})
test.after(async () => await host.off())

test('curl … | sh asks on the terminal; everything but yes leaves the host as it was', async () => {
  for (const typed of ['n\n', '\n', 'yesterday\n', '']) {
    const { code, stdout } = await atTerminal(PIPED, typed)
    is(code, 7, stdout)
    match(stdout, 'Continue? [y/N]')
    match(stdout, /1 {2}\w+/) // the plan came first
    match(stdout, 'not confirmed; nothing was changed')
    is((await host.run(['sh', '-c', 'ls -d /opt/beacon /etc/beacon /var/lib/beacon'])).stdout, '')
    is((await host.run(['id', 'beacon'])).code, 1)
  }
})

test('yes installs, and each step is drawn', async () => {
  const { code, stdout } = await atTerminal(PIPED, 'y\n')
  is(code, 0, stdout)
  match(stdout, 'Continue? [y/N]')
  match(stdout, `${ESCAPE}[32m`) // green: done
  match(stdout, 'beacon v1.0.0 is installed and running')
  is((await host.status()).instance.version, 'v1.0.0')
})

test('NO_COLOR: lines are redrawn, without a colour; no terminal: plain lines', async () => {
  await setUpdate(host, { probation: '1s' })
  await host.ok('systemctl', 'restart', 'beacon')
  const drawn = await atTerminal('NO_COLOR=1 beacon upgrade v1.1.0', '')
  is(drawn.code, 0, drawn.stdout)
  match(drawn.stdout, `${ESCAPE}[2K`)
  for (const colour of ['31', '32', '33', '36']) not.match(drawn.stdout, `${ESCAPE}[${colour}m`)
  const plain = await host.cli('rollback')
  is(plain.code, 0, plain.stderr)
  not.match(plain.stderr, ESCAPE)
})

test('a purge wants the name typed, then yes; with another name nothing is removed', async () => {
  for (const typed of ['y\n', 'bacon\n', 'beacon\nn\n']) {
    const { code, stdout } = await atTerminal('beacon uninstall --purge', typed)
    is(code, 7, stdout)
    match(stdout, 'This removes all data belonging to beacon')
    is((await host.status()).instance.version, 'v1.0.0')
  }
  const { code, stdout } = await atTerminal('beacon uninstall --purge', 'beacon\ny\n')
  is(code, 0, stdout)
  is((await host.run(['sh', '-c', 'ls -d /var/lib/beacon /etc/beacon'])).stdout, '')
})

/** What is typed is there before it is asked for, as from somebody who types ahead. Output is what the terminal shows. */
async function atTerminal(command: string, typed: string): Promise<Ran> {
  return await host.run(['env', 'TERM=xterm', 'script', '--quiet', '--return', '--command', command, '/dev/null'], {
    input: typed,
  })
}

test.run()
