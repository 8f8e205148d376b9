// Who has taken over a service must not become root through the commands that root runs about it. Each attack is raced: the
// service's user changes its own places in a loop while root runs command after command. BATON_ATTACK_MS: how long each goes on
// (1.5 s; 60 s by `npm run soak -- --attacks`). BATON_ATTACK_REPORT: a file for how often they met, as a table.

import { readFile, writeFile } from 'node:fs/promises'
import { equal, is, match, ok } from '../assert.ts'
import { bootWithReleases, EXECUTABLE, type FeedHost, put } from '../lab/managed.ts'
import { eventually, noHosts } from '../lab/systemd.ts'
import { faultsIn } from '../lab/strace.ts'
import { isLong, suite } from '../suite.ts'

const ATTACK_MS = Number(process.env['BATON_ATTACK_MS'] ?? 1500)
const test = suite('systemd: attacks', { skip: noHosts, timeoutMs: 240_000 + 3 * ATTACK_MS })
/** each round of an attacker starts processes; they are many enough in CI */
const PAUSE_S = isLong || process.env['BATON_ATTACK_MS'] !== undefined ? 0 : 0.05
const ROOT_PROGRAM = '/usr/local/lib/beacon/beacon'

/** What an attacker wants root to run: says who ran it, and tries every way back to root. */
const EVIL = `#!/bin/sh
# in the sandbox of the service it can write in the service's own places only
exec 2>/dev/null
[ -w /srv/ran ] && ran=/srv/ran || ran=/var/lib/beacon
id -u >> $ran/by
perl -e '$< = 0; $> = 0; exit($> == 0 ? 0 : 1)' && echo effective >> $ran/root
perl -e 'exit(syscall(117, 0, 0, 0) == 0 ? 0 : 1)' && echo setresuid >> $ran/root
[ "$(id -u)" != 0 ] || echo uid >> $ran/root
[ ! -r /root/secret ] || echo read >> $ran/root
printf 'beacon v1.0.0\\n'
`

/** Looks at where it is, and leaves something behind. */
const FUGITIVE = `#!/bin/sh
{ grep -E '^(Seccomp|NoNewPrivs):' /proc/self/status; ls /home/eve; ls /tmp; } >/var/lib/beacon/seen 2>&1
setsid sleep 4321 >/dev/null 2>&1 </dev/null &
sleep 4322 >/dev/null 2>&1 </dev/null &
printf 'beacon v1.0.0\\n'
`
const STOPPER = `#!/bin/sh
kill -STOP $PPID
printf 'beacon v1.0.0\\n'
`

let host: FeedHost
const rows = ['| attack, raced | commands of root | rounds of the attacker | seconds |', '| --- | --: | --: | --: |']

test.before(async () => {
  host = await bootWithReleases([{ tag: 'v1.0.0' }, { tag: 'v1.1.0' }])
  await host.install()
  await host.ok(
    'sh',
    '-c',
    'mkdir -m 1777 /srv/ran; echo only-root-may-read-this > /root/secret; chmod 600 /root/secret; useradd --create-home eve; mkdir /root/target; echo mine > /root/target/file; touch /tmp/of-the-host; chmod 755 /home/eve; touch /home/eve/mine',
  )
  await put(host, '/srv/evil', EVIL)
  await host.ok('chmod', '755', '/srv/evil')
})
test.after(async () => {
  await host.off()
  const path = process.env['BATON_ATTACK_REPORT']
  if (path !== undefined) await writeFile(path, rows.join('\n'))
})

test.long("root's own command and receipt stand where the service's user can change nothing", async () => {
  for (const path of ['/usr/local/lib/beacon', ROOT_PROGRAM, '/usr/local/lib/beacon/receipt.json', '/usr/local/bin']) {
    is((await host.run(['test', '-w', path], { user: 'beacon' })).code, 1, path)
  }
  is((await host.ok('readlink', '/usr/local/bin/beacon')).trim(), ROOT_PROGRAM)
})

test('the check of a trace is a check: a root that opens a file of the service is told', async () => {
  await host.run([...TRACED, 'cat', '/var/lib/beacon/update/installed.json'])
  ok((await faults()).length > 0)
  await host.run([...TRACED, '/opt/beacon/beacon', '--version'])
  ok((await faults()).some((fault) => fault.includes('execve')))
})

test("strace over every command as root: nothing in the service's places is touched by a process that is root", async () => {
  // in CI each command once: to the running service, and then to the one that is stopped
  const commands = [
    ['beacon', 'check'],
    ['beacon', 'doctor'],
    ['beacon', 'upgrade', '-n'],
    ['beacon', 'upgrade', 'v1.1.0'],
    ['beacon', 'stop'],
    ...(isLong
      ? [
          ['beacon', 'start'],
          ['beacon', 'stop'],
        ]
      : []),
    ['beacon', 'rollback'],
    ...(isLong
      ? [
          ['beacon', 'cancel'],
          ['beacon', 'stop'],
          ['sh', '/srv/feed/v1.1.0/install.sh', '-y'],
        ]
      : []),
    ['sh', '/srv/feed/v1.1.0/install.sh', 'status'],
    ['beacon', 'uninstall', '-y'],
    ['sh', '/srv/feed/v1.0.0/install.sh', '-y', '--feed', '/srv/feed'],
    ['beacon', 'uninstall', '--purge', '--confirm', 'beacon', '-y'],
  ]
  for (const command of commands) {
    const { code, stderr } = await host.run([...TRACED, ...command])
    equal([command, code], [command, 0], stderr)
    equal([command, await faults()], [command, []])
  }
  is(
    (await host.run(['id', 'beacon'])).code,
    1,
    'the user is gone too, though the install that made it was another one',
  )
  if (!isLong) await host.install() // else the next test does it
})

test.long(
  'an install that fails is undone inside a folder of the service by the service: no link there leads root anywhere',
  async () => {
    await host.run(['userdel', 'beacon'])
    // so that the unit cannot be written
    const units = '/etc/systemd/system'
    await host.ok('sh', '-c', `mount --bind ${units} ${units} && mount -o remount,bind,ro ${units}`)
    const install = ['sh', '/srv/feed/v1.0.0/install.sh', '-y', '--feed', '/srv/feed']
    const failed = await host.run([...TRACED, ...install])
    equal([failed.code, await faults()], [7, []], failed.stderr)
    match(failed.stderr, 'EROFS')
    for (const path of ['/opt/beacon', '/var/lib/beacon', '/etc/beacon', '/usr/local/lib/beacon'])
      is((await host.run(['test', '-e', path])).code, 1, path)
    is((await host.run(['id', 'beacon'])).code, 1)
    await race(
      'an install fails: what is inside the folders that were given away becomes links',
      'for i in 1 2 3 4 5 6 7 8; do mkdir -p /opt/beacon/d$i/e; mv -T /opt/beacon/d$i /opt/beacon/.d$i; ln -s /root/target /opt/beacon/d$i; rm -rf /opt/beacon/d$i /opt/beacon/.d$i; done',
      [[...install, '--run-as', 'eve']],
      { user: 'eve' },
    )
    is(await host.ok('cat', '/root/target/file'), 'mine\n')
    await host.ok('umount', units)
    await host.run(['rm', '-rf', '/opt/beacon', '/var/lib/beacon'])
    await host.install()
  },
)

test.long("what root's commands start of the service is in its sandbox, and ends with the command", async () => {
  await inPlace(FUGITIVE)
  for (const command of [['status'], ['doctor']]) {
    await host.cli(...command)
    const seen = await host.ok('sh', '-c', 'cat /var/lib/beacon/seen; rm /var/lib/beacon/seen')
    match(seen, /^NoNewPrivs:\s1$/m)
    match(seen, /^Seccomp:\s2$/m)
    is(/^(mine|of-the-host)$/m.test(seen), false, seen)
    is((await host.run(['pgrep', '-f', '^sleep 432'])).stdout, '', `left by ${command.join(' ')}`)
  }
  await renew()
})

const LINGERER = `#!/bin/sh
busctl call org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager SetUserLinger ubb "$(id -u)" true true >/var/lib/beacon/seen 2>&1
printf 'beacon v1.0.0\\n'
`

test.long(
  'the service can ask no manager for a process outside its sandbox; a manager of its user ends with a stop',
  async () => {
    const asService = 'systemd-run --quiet --wait --pipe --uid=beacon'
    const sandbox = await host.ok('sh', '-c', 'grep ^InaccessiblePaths= /etc/systemd/system/beacon.service')
    const ask = `busctl --system list`
    is((await host.run(['sh', '-c', `${asService} ${ask}`])).code, 0, 'D-Bus answers outside of the sandbox')
    ok((await host.run(['sh', '-c', `${asService} --property='${sandbox.trim()}' ${ask}`])).code !== 0)
    await inPlace(LINGERER)
    await host.cli('status')
    match(await host.ok('sh', '-c', 'cat /var/lib/beacon/seen; rm /var/lib/beacon/seen'), /Permission denied|Failed to/)
    await renew()
    await host.run(['loginctl', 'enable-linger', 'beacon'])
    const uid = (await host.ok('id', '-u', 'beacon')).trim()
    await host.run(['systemctl', 'start', `user@${uid}.service`])
    is((await host.cli('stop')).code, 0)
    ok((await host.run(['systemctl', 'is-active', `user@${uid}.service`])).code !== 0)
    is((await host.run(['test', '-e', '/var/lib/systemd/linger/beacon'])).code, 1)
    is((await host.cli('start')).code, 0)
  },
)

test.long(
  'a process of the service that stands still keeps nobody from ending a command of root; a stop ends what a killed one has left',
  async () => {
    await inPlace(STOPPER)
    const stopped = "until ps -u beacon -o stat= | grep -q '^T'; do sleep 0.05; done"
    const ask = (then: string) =>
      host.run(['sh', '-c', `beacon status >/srv/said 2>&1 & p=$!; ${stopped}; ${then}`], { timeoutMs: 60_000 })
    is((await ask('kill -INT $p; wait $p; echo $?')).stdout, '7\n')
    match(await host.ok('cat', '/srv/said'), 'the command was stopped by SIGINT')
    const standing = async () => (await host.run(['sh', '-c', "ps -u beacon -o stat= | grep '^T'"])).stdout
    is(await standing(), '')
    await ask('kill -KILL $p')
    match(await standing(), /^T/)
    is((await host.cli('stop')).code, 0)
    is(await standing(), '')
    await renew()
  },
)

test('an executable of the attacker is never run by root, and who runs it has no way back', async () => {
  await race(
    "the executable and its backup are the attacker's, who tries every way back to root",
    `cp /srv/evil /opt/beacon/.x; mv /opt/beacon/.x ${EXECUTABLE}; cp /srv/evil /opt/beacon/.y; mv /opt/beacon/.y ${EXECUTABLE}.backup`,
    [
      ['beacon', 'status'],
      ['beacon', 'doctor'],
      ['beacon', 'upgrade', '-n'],
      ['sh', '/srv/feed/v1.0.0/install.sh', 'status'],
      // verified, and of a service that is stopped
      ['beacon', 'stop'],
      ['sh', '/srv/feed/v1.0.0/install.sh', '-y', '--health-timeout', '2s'],
    ],
    { pauseS: PAUSE_S },
  )
  match(await host.ok('sh', '-c', 'cat /srv/ran/by /var/lib/beacon/by 2>/dev/null; true'), /^\d+\n/) // it was run, by somebody
  await nobodyBecameRoot()
  await renew()
})

// a write of root there would be in the trace above, as root makes each of these commands
test.long('a planted `.partial` leads no write of root anywhere', async () => {
  await host.ok('sh', '-c', 'echo mine > /root/victim')
  is((await host.cli('stop')).code, 0)
  await race(
    "`.partial` is a link to a file of root's",
    'ln -sf /root/victim /opt/beacon/.beacon.partial; rm -f /opt/beacon/.beacon.partial; ln -s /root/victim /opt/beacon/.beacon.partial',
    [
      ['beacon', 'upgrade', 'v1.1.0', '--health-timeout', '5s'],
      ['beacon', 'stop'],
      ['beacon', 'rollback', '--health-timeout', '5s'],
      ['beacon', 'stop'],
    ],
  )
  is(await host.ok('cat', '/root/victim'), 'mine\n')
  equal((await host.ok('stat', '-c', '%U %a', '/root/victim')).trim(), 'root 644')
  await nobodyBecameRoot()
})

test.long('a forged receipt gives root neither another user, nor another state directory to purge', async () => {
  await host.cli('stop')
  await host.ok('sh', '-c', 'mkdir -p /root/precious && echo mine > /root/precious/file')
  const { stateDirectory: _, ...real } = JSON.parse(await host.ok('cat', '/usr/local/lib/beacon/receipt.json')) as {
    stateDirectory: string
  }
  const forged = JSON.stringify({ ...real, user: 'root', tag: 'v1.0.0', sha256: '', stateDirectory: '/root/precious' })
  await put(host, '/srv/forged', forged)
  await race(
    "a receipt that names root as the user, and root's folder as the state",
    `cp /srv/forged /opt/beacon/.r; mv /opt/beacon/.r /opt/beacon/receipt.json; cp /srv/evil /opt/beacon/.x; mv /opt/beacon/.x ${EXECUTABLE}`,
    [
      ['beacon', 'upgrade'],
      ['beacon', 'status'],
    ],
    { pauseS: PAUSE_S },
  )
  await nobodyBecameRoot()
  is((await host.cli('uninstall', '--purge', '--confirm', 'beacon', '-y')).code, 0)
  is(await host.ok('cat', '/root/precious/file'), 'mine\n')
  await host.install()
})

test.long('a link in a feed that the service names shows nothing that only root may read', async () => {
  const said = await race(
    "a feed of the service's own, with links to a file that only root may read",
    `mkdir -p /var/lib/beacon/feed/v9.0.0; ln -sf /root/secret /var/lib/beacon/feed/v9.0.0/SHA256SUMS; ln -sf /root/secret /var/lib/beacon/feed/releases.json`,
    [
      ['beacon', 'check'],
      ['beacon', 'doctor'],
      ['beacon', 'upgrade', '-n'],
      ['beacon', 'stop'],
      ['beacon', 'upgrade'],
    ],
    {
      before: `sed -i 's#"stateDirectory"#"feed": "/var/lib/beacon/feed", "stateDirectory"#' /etc/beacon/config.json`,
      pauseS: PAUSE_S,
    },
  )
  ok(!said.includes('only-root-may-read-this'), said.slice(-500))
  ok(!(await host.ok('journalctl', '--no-pager')).includes('only-root-may-read-this'))
})

test('what root shows of the service holds nothing that a terminal obeys', async () => {
  const journal = {
    format: 1,
    operation: null,
    history: [],
    probation: null,
    bad: [{ tag: 'v1.1.0', sha256: null, at: 'x', reason: '\u001B[2J\u009B31m\u202Eroot#' }],
  }
  await host.ok('systemctl', 'start', 'beacon')
  await host.ok(
    'runuser',
    '-u',
    'beacon',
    '--',
    'sh',
    '-c',
    `printf '%s' '${JSON.stringify(journal)}' > /var/lib/beacon/update/journal.json`,
  )
  await host.ok('sed', '-i', 's#"feed": "/var/lib/beacon/feed", ##', '/etc/beacon/config.json')
  const { stderr, stdout } = await host.cli('upgrade', '-n', 'v1.1.0')
  match(stderr, 'trying v1.1.0 again, because you named it; it failed here at ')
  // oxlint-disable-next-line no-control-regex -- it is what is looked for
  is(/[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u202E]/.test(stderr + stdout), false, JSON.stringify(stderr))
})

test.long('directories are made and given away by root only where nobody can put a link meanwhile', async () => {
  is((await host.cli('uninstall', '--purge', '--confirm', 'beacon', '-y')).code, 0)
  await host.ok('sh', '-c', 'ls /root/target/file')
  // install.sh unpacks below /tmp: whoever opens one of these waits for ever
  await host.run(['mkfifo', '/tmp/package.json', '/tmp/baton.config.json'], { user: 'eve' })
  await race(
    'the folders that root makes and gives away become links',
    'rm -rf /home/eve/app /home/eve/state; ln -s /root/target /home/eve/app; ln -s /root/target /home/eve/state; rm -f /home/eve/app /home/eve/state; mkdir /home/eve/app /home/eve/state',
    [
      [
        'sh',
        '/srv/feed/v1.0.0/install.sh',
        '-y',
        '--feed',
        '/srv/feed',
        '--run-as',
        'eve',
        '--prefix',
        '/home/eve/app',
        '--state-dir',
        '/home/eve/state',
        '--no-start',
      ],
      ['beacon', 'uninstall', '--purge', '--confirm', 'beacon', '-y'],
    ],
    { user: 'eve' },
  )
  is((await host.run(['rm', '/tmp/package.json', '/tmp/baton.config.json'])).code, 0)
  equal((await host.ok('stat', '-c', '%n %U', '/root/target', '/root/target/file')).trim().split('\n'), [
    '/root/target root',
    '/root/target/file root',
  ])
  is((await host.ok('ls', '-A', '/root/target')).trim(), 'file')
  await host.run([
    'sh',
    '-c',
    'rm -rf /usr/local/lib/beacon /usr/local/bin/beacon /etc/beacon /etc/systemd/system/beacon*',
  ])
})

test.long('root ends no process that a pid file or a command line names', async () => {
  const installed = await host.installer('v1.0.0', 'install', '-y', '--no-service')
  is(installed.code, 0, installed.stderr)
  // and what its commands start ends with them, unless it has left their group: that is said
  match((await host.cli('doctor')).stdout, 'processes that root’s commands start as beacon are not confined')
  await inPlace(FUGITIVE)
  await host.cli('status')
  is((await host.run(['pgrep', '-f', '^sleep 4322'])).stdout, '')
  await host.run(['pkill', '-f', '^sleep 4321'])
  await host.ok('sh', '-c', 'setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $! > /srv/victim.pid')
  // the same command line and the same user, in another pid namespace, as in a container
  await put(host, '/srv/elsewhere/serve', 'sleep 1000;')
  const namesake = `cd /srv/elsewhere && exec perl -e 'exec {"/usr/bin/perl"} "/opt/beacon/beacon", "serve", "--config", "/etc/beacon/config.json"'`
  await host.ok(
    'sh',
    '-c',
    `unshare --pid --fork setpriv --reuid beacon --clear-groups sh -c '${namesake.replaceAll("'", String.raw`'\''`)}' >/dev/null 2>&1 </dev/null & echo`,
  )
  const others = async () =>
    (await host.run(['pgrep', '-f', '^/opt/beacon/beacon serve'])).stdout.trim().split('\n').length
  await eventually('the namesake', async () => (await others()) >= 2)
  const pid = (await host.ok('cat', '/srv/victim.pid')).trim()
  const startTime = (await readFile(await host.path(`/proc/${pid}/stat`), 'utf8')).split(') ')[1]?.split(' ')[19]
  const forged = JSON.stringify({ supervisor: { pid: Number(pid), startTime }, service: null, restarts: 0 })
  await put(host, '/srv/forged.pid', forged)
  await race(
    "the pid file names a process of root's; a namesake runs in another pid namespace",
    'cp /srv/forged.pid /var/lib/beacon/run/p; mv /var/lib/beacon/run/p /var/lib/beacon/run/beacon.pid',
    [
      ['beacon', 'stop'],
      ['beacon', 'status'],
    ],
    { pauseS: PAUSE_S },
  )
  is((await host.run(['kill', '-0', pid])).code, 0, "root's process is alive")
  ok((await others()) >= 1, 'the namesake is alive')
  await nobodyBecameRoot()
})

const TRACED = [
  'strace',
  '-f',
  '-y',
  '-s',
  '300',
  '-o',
  '/srv/trace',
  '-e',
  'trace=execve,open,openat,openat2,creat,truncate,unlink,unlinkat,rename,renameat,renameat2,link,linkat,symlink,symlinkat,mkdir,mkdirat,rmdir,chmod,fchmod,fchmodat,chown,fchown,lchown,fchownat,mknod,mknodat,setxattr,kill,tkill,tgkill,pidfd_send_signal,setuid,setresuid,setreuid,clone,clone3,fork,vfork',
]

async function faults(): Promise<string[]> {
  return faultsIn(await readFile(await host.path('/srv/trace'), 'utf8'), {
    inside: ['/opt/beacon', '/var/lib/beacon'],
    files: ['/etc/beacon/config.json'],
  })
}

/**
 * The service's user does `change` in a loop while root runs `commands` over and over, for as long as an attack takes. `pauseS`: between
 * two rounds of what only has to be put there again. What must meet one instant of root's has none.
 */
async function race(
  attack: string,
  change: string,
  commands: string[][],
  { before = null, user = 'beacon', pauseS = 0 }: { before?: string | null; user?: string; pauseS?: number } = {},
): Promise<string> {
  const pause = pauseS > 0 ? `; sleep ${pauseS}` : ''
  if (before !== null) await host.ok('sh', '-c', before)
  await host.ok('rm', '-f', '/srv/stop')
  const attacker = host.run(
    ['sh', '-c', `n=0; while [ ! -e /srv/stop ]; do ${change}${pause}; n=$((n + 1)); done 2>/dev/null; echo $n`],
    {
      user,
      timeoutMs: 200_000 + 3 * ATTACK_MS,
    },
  )
  let said = ''
  let ran = 0
  const startedAt = Date.now()
  do {
    for (const command of commands) {
      ran++
      const { stdout, stderr } = await host.run(command)
      said += stdout + stderr
    }
  } while (Date.now() < startedAt + ATTACK_MS)
  const seconds = Math.round((Date.now() - startedAt) / 1000)
  await host.ok('touch', '/srv/stop')
  const rounds = (await attacker).stdout.trim()
  rows.push(`| ${attack} | ${ran} | ${rounds} | ${seconds} |`)
  process.stdout.write(`  ${ran} commands of root against ${rounds} rounds of the attacker in ${seconds} s\n`)
  return said
}

async function nobodyBecameRoot(): Promise<void> {
  is((await host.run(['cat', '/srv/ran/root', '/var/lib/beacon/root'])).stdout, '')
}

/** The attacker's, in place of the executable. */
async function inPlace(text: string): Promise<void> {
  await put(host, '/srv/other', text)
  await host.ok('sh', '-c', `install -o beacon -m 755 /srv/other /opt/beacon/.x && mv /opt/beacon/.x ${EXECUTABLE}`)
}

/** The attacker is gone: what is in place is the service again. */
async function renew(): Promise<void> {
  await host.ok('systemctl', 'stop', 'beacon')
  await host.ok(
    'sh',
    '-c',
    `cp ${ROOT_PROGRAM} /opt/beacon/x && chown beacon: /opt/beacon/x && mv /opt/beacon/x ${EXECUTABLE}`,
  )
  await host.ok('rm', '-f', `${EXECUTABLE}.backup`)
  await host.ok('systemctl', 'reset-failed', 'beacon')
  is((await host.cli('start')).code, 0)
}

test.run()
