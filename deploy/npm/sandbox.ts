// Runs npm, and code of packages, apart from this host: its own mounts, processes and (unless it is npm's turn) no network but loopback.
// Must hold: whatever runs there sees programs, libraries and the folders that it was given; of these it writes the writable ones
// only. It is never root with a capability: root's runs have a user id that no account has, or root's without any.

import { getegid, geteuid } from 'node:process'
import { BatonError } from '../../agent/words.ts'
import { type CommandResult, formatCommand, run } from '../lib/shell.ts'

export interface Cell {
  cwd: string
  /** absolute paths, seen under the same names; what is not there is left out */
  sees: readonly string[]
  writes: readonly string[]
  /** npm has it, packages do not */
  network: boolean
  /** as whom root runs it; null: as root, without a capability. Others run it as themselves */
  uid: number | null
  environment: Readonly<Record<string, string>>
  timeoutMs: number
  /** gives way to everything else on this host */
  calm: boolean
}

/** What programs read of the host. */
const NEEDED = (
  '/usr /bin /sbin /lib /lib32 /lib64 /libx32 /nix/store /etc/alternatives /etc/ca-certificates /etc/ca-certificates.conf ' +
  '/etc/ld.so.cache /etc/ld.so.conf /etc/ld.so.conf.d /etc/pki /etc/ssl/certs /etc/ssl/openssl.cnf /etc/localtime ' +
  '/etc/mime.types /etc/services /etc/protocols /etc/nsswitch.conf'
).split(' ')
const FOR_NETWORK = ['/etc/resolv.conf', '/etc/hosts', '/etc/npmrc']
export const HOME = '/home/npm'

/**
 * The shell's text that makes the place and goes into it; `$0` is an empty folder. It has no name that another process could change
 * while it works: all is below a file system of its own.
 */
function setUpText({ sees, writes, network, uid, cwd }: Cell, isRoot: boolean): string {
  const seen = [...NEEDED, ...(network ? FOR_NETWORK : []), ...sees]
  const self = isRoot ? (uid ?? 0) : (geteuid?.() ?? 0)
  const group = isRoot ? self : (getegid?.() ?? 0)
  const ids = isRoot ? `--reuid ${self} --regid ${group} --clear-groups ` : ''
  return `set -e; umask 022; r=$0; n=$1; shift
mount -t tmpfs -o mode=755,size=64M baton "$r"
put() { # PATH OPTION
  [ -e "$1" ] || return 0
  [ "$2" = rw ] || [ ! -e "$r$1" ] || return 0
  if [ -L "$1" ] && [ "$2" = ro ]; then mkdir -p "$r$(dirname "$1")"; cp -P "$1" "$r$1"; return 0; fi
  if [ -d "$1" ]; then mkdir -p "$r$1"; else mkdir -p "$r$(dirname "$1")"; : >"$r$1"; fi
  mount --bind "$1" "$r$1"
  [ "$2" = rw ] || mount -o remount,bind,ro,nosuid "$r$1" 2>/dev/null || [ "$n" = user ]
}
mkdir -p "$r/tmp" "$r/var/tmp" "$r/dev/shm" "$r/dev/pts" "$r/proc" "$r/etc" "$r${HOME}" "$r/run"
mount -t tmpfs -o mode=1777,size=4G,nosuid baton "$r/tmp"
mount -t tmpfs -o mode=1777,size=256M,nosuid baton "$r/dev/shm"
for p in ${formatCommand(seen)}; do put "$p" ro; done
for p in ${formatCommand(writes)}; do put "$p" rw; done
for d in null zero full random urandom tty; do : >"$r/dev/$d"; mount --bind "/dev/$d" "$r/dev/$d"; done
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$r/dev/pts" 2>/dev/null && ln -s pts/ptmx "$r/dev/ptmx" || :
ln -s /proc/self/fd "$r/dev/fd"
printf 'root:x:0:0::/:/bin/sh\\nnpm:x:${self === 0 ? 65533 : self}:${self === 0 ? 65533 : group}::${HOME}:/bin/sh\\n' >"$r/etc/passwd"
printf 'root:x:0:\\nnpm:x:${self === 0 ? 65533 : group}:\\n' >"$r/etc/group"
[ -e "$r/etc/hosts" ] || printf '127.0.0.1 localhost\\n::1 localhost\\n' >"$r/etc/hosts"
mount -t proc proc "$r/proc"
chmod 777 "$r${HOME}"
${network ? '' : 'ip link set lo up 2>/dev/null || ifconfig lo up 2>/dev/null || perl -e \'socket(S,2,2,0);$i=pack("a16s","lo",73);ioctl(S,0x8914,$i) or exit 1\'\n'}mount -o remount,ro "$r" 2>/dev/null || [ "$n" = user ]
mount -t tmpfs -o mode=777,size=256M,nosuid baton "$r${HOME}"
ulimit -c 0; ulimit -u 4096 2>/dev/null || :
cd "$r${cwd}"
exec chroot "$r" setpriv ${ids}--pdeathsig KILL --bounding-set -all --inh-caps -all --ambient-caps -all --no-new-privs -- /bin/sh -c 'cd "$0" && exec "$@"' ${formatCommand([cwd])} "$@"`
}

/** The command line that runs `command` in the cell. `empty`: a folder that only this program's user can change. */
export function inCell(cell: Cell, empty: string, command: readonly string[]): string[] {
  const isRoot = geteuid?.() === 0
  const spaces = ['--mount', '--pid', '--ipc', '--uts', ...(cell.network ? [] : ['--net'])]
  const environment = Object.entries(cell.environment).map(([name, value]) => `${name}=${value}`)
  const user = isRoot ? [] : ['--user', '--map-current-user', '--keep-caps']
  const calmly = cell.calm ? ['nice', '-n', '10', 'ionice', '-c', '3'] : []
  // whoever is killed takes it along; the last `setpriv` asks for that again: another user id makes the kernel forget it
  const own = ['setpriv', '--pdeathsig', 'KILL', 'unshare', ...user, ...spaces]
  const apart = [...own, '--propagation', 'private', '--fork', '--kill-child=SIGKILL']
  const shell = ['/bin/sh', '-c', setUpText(cell, isRoot), empty, isRoot ? 'root' : 'user']
  return ['env', '-i', ...FIRST, ...environment, ...calmly, ...apart, ...shell, ...command]
}

const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
const FIRST = [`PATH=${PATH}`, `HOME=${HOME}`, 'LANG=C.UTF-8', 'CI=1', 'npm_config_update_notifier=false']

/** Resolves to how it ended, whatever its exit code. */
export async function runInCell(cell: Cell, empty: string, command: readonly string[]): Promise<CommandResult> {
  return await run(inCell(cell, empty, command), { timeoutMs: cell.timeoutMs, cwd: '/', allowFailure: true })
}

/** Throws BatonError unsupported_host if this host lets nobody make such a place. */
export async function assertCell(empty: string, uid: number | null): Promise<void> {
  const cell = { cwd: '/', sees: [], writes: [], network: false, uid, environment: {}, timeoutMs: 20_000, calm: false }
  const { exitCode, stderr } = await runInCell(cell, empty, ['true'])
  if (exitCode === 0) return
  throw new BatonError(
    'unsupported_host',
    `this host cannot run packages in isolation: ${stderr.trim().slice(-300) || `exit code ${exitCode}`}`,
    {
      hint: 'install `unshare` and `setpriv` from util-linux 2.38 or later and, for users other than root, enable user namespaces; or build elsewhere with `--build-only`',
    },
  )
}
