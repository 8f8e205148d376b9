// The units of the cage in which a release is tried on a copy of the data (agent/update/rehearsal/). Pure.
// Must hold: even an attacker in the cage reaches no process, socket, network or state of the host, and can write nothing but the copy, to
// a file system of limited size that goes with the cage. No path that root opens for the cage leads through a folder of the service's user.

import { join } from 'node:path'
import { REHEARSAL_FOLDER, REHEARSAL_REQUEST, rehearsalFolder } from '../../../agent/install.ts'
import type { Layout } from './layout.ts'
import { MARK, WALLS } from './unit.ts'

/** The first systemd that can give a unit its own pid namespace. */
const PRIVATE_PIDS_SINCE = 257

/** What of the host a release may need to start: programs and libraries, and the few files of /etc that these read. */
const NEEDED = [
  ...['usr', 'bin', 'sbin', 'lib', 'lib32', 'lib64', 'libx32', 'nix/store'].map((name) => `/${name}`),
  ...['alternatives', 'ca-certificates', 'fonts', 'ld.so.cache', 'ld.so.conf', 'ld.so.conf.d', 'pki'].map(etc),
  ...['ssl/certs', 'ssl/openssl.cnf', 'localtime', 'timezone', 'mime.types', 'services', 'protocols'].map(etc),
  ...['os-release', 'lsb-release', 'debian_version', 'machine-id', 'hostname', 'hosts'].map(etc),
  ...['nsswitch.conf', 'passwd', 'group'].map(etc),
]
/** Beside the executable, since the directory as a whole is seen: what people put there. */
const SECRETS = ['.env', '.env.local', '.env.production', '.env.production.local', '.npmrc', '.git', 'secrets']

const [TMP, SHM] = ['size=256M,nr_inodes=16k,mode=1777', 'size=64M,nr_inodes=1k,mode=1777']

/** Of a trial: files that its file system can have; KiB beside a multiple of the copy; KiB from which it lies on the disk; KiB that stay free there. */
const [FILES, BASE_KIB, MEMORY_KIB, FREE_KIB] = [65_536, 65_536, 786_432, 524_288]

/**
 * systemd gives every command of a unit the mounts of the unit, also those that root runs: this shell runs its argument among the host's
 * mounts. It has no /proc, and needs one for a moment.
 */
const OUTSIDE = `/bin/sh -c 'mount -t proc proc /tmp && exec nsenter --mount=/tmp/1/ns/mnt -- /bin/sh -c "$$0"'`

/** What it may use; the time is that of the longest budget (agent/update/rehearsal/budget.ts). */
const LIMITS = `MemoryMax=2G
MemorySwapMax=0
TasksMax=512
LimitNPROC=512
LimitDATA=3G
LimitFSIZE=16G
LimitCORE=0
CPUWeight=20
IOWeight=20
Nice=5
OOMScoreAdjust=900
RuntimeMaxSec=11400
TimeoutStopSec=10
KillMode=control-group
SuccessExitStatus=1 SIGKILL SIGTERM
`

/** Whether an install of this layout gets a cage. The copy is bound over a state directory whose parents are root's. */
export function hasCage({ scope, stateIsStandard }: Layout): boolean {
  return scope === 'system' && stateIsStandard
}

/** Starts the cage when a request appears in the folder. */
export function cagePathUnit(layout: Layout): string {
  return `${MARK}
[Unit]
Description=${layout.service}: starts a trial when a release is to be tried on a copy of the data

[Path]
PathChanged=${request(layout)}
TriggerLimitIntervalSec=10s
TriggerLimitBurst=20

[Install]
WantedBy=multi-user.target
`
}

/**
 * The cage. A process of the same user is not caged by that: it could read and kill the live service.
 *
 * - `PrivateUsers=` keeps it from the memory, the files and the signals of the user's other processes; a pid namespace from seeing
 *   them. systemd before 257 has none, so `unshare` makes it, with a capability inside the user namespace that `setpriv` drops.
 * - Its root is empty but for what a release needs (`NEEDED`), so sockets and FIFOs of the host have no name there. The network has only its
 *   own loopback, and `SupplementaryGroups=` none of the groups that an operator has given the user.
 * - The state directory is a file system of limited size and files, made for each trial: in memory if the copy is small beside what is free,
 *   else on a loop device whose file has no name. Once the cage has begun, only the cage has it, so it goes with the last process
 *   there. If neither is possible, the performer finds a folder that is not its own, and nothing is tried. Both temporary folders are
 *   in memory.
 * - No `ProtectSystem=`: systemd 252 takes its read-only `/` instead of the empty one. Everything bound is read-only by itself.
 * - `DeviceAllow=` is for the loop device that root makes. The cage has no node of one, and can make none.
 * - `LimitNPROC=` counts inside the user namespace. The `Limit…=` settings hold on a host without cgroup controllers, too.
 * - `ConditionPathExists=`: without it, the removal of the request would start a second cage.
 * - Of what an author asks of the unit, only `/run/<service>` is there: a device, a capability or another folder would be a way out.
 * - The folder with the copy is read-only there: the performer copies it, and reports over a socket in it.
 */
export function cageUnit(layout: Layout, systemdVersion: number): string {
  const { service, executable, user, stateDirectory, directory } = layout
  const hasPids = systemdVersion >= PRIVATE_PIDS_SINCE
  const outside = hasPids
    ? ''
    : '/usr/bin/unshare --pid --fork --kill-child=SIGKILL /usr/bin/setpriv --ambient-caps -all '
  const pids = hasPids
    ? 'PrivatePIDs=yes\nCapabilityBoundingSet=\nRestrictNamespaces=yes'
    : 'AmbientCapabilities=CAP_SYS_ADMIN\nCapabilityBoundingSet=CAP_SYS_ADMIN\nRestrictNamespaces=pid'
  const folder = rehearsalFolder(stateDirectory)
  const seen = [...NEEDED.map((path) => `-${path}`), directory, folder, ...(layout.node === null ? [] : [layout.node])]
  const hidden = SECRETS.map((name) => join(directory, name))
  return `${MARK}
[Unit]
Description=${service}: tries a release on a copy of the data
ConditionPathExists=${request(layout)}
Wants=modprobe@loop.service
After=modprobe@loop.service
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStartPre=+${OUTSIDE} '${makeRoom(layout)}'
ExecStart=${outside}${executable} as-service in-cage
ExecStartPost=-+${OUTSIDE} 'umount -l ${roomOf(layout)}'
ExecStopPost=-+${OUTSIDE} 'umount -l ${roomOf(layout)} 2>/dev/null; rmdir ${roomOf(layout)}'
Environment=${REHEARSAL_FOLDER}=${folder}
${layout.node === null ? '' : `Environment=BATON_NODE=${layout.node}\n`}User=${user}
Group=${user}
SupplementaryGroups=
WorkingDirectory=-${stateDirectory}
TemporaryFileSystem=/:ro /tmp:${TMP} /var/tmp:${TMP} /dev/shm:${SHM}${layout.asks?.runtimeDirectory === true ? ` /run/${service}:${TMP}` : ''}
MountAPIVFS=yes
BindReadOnlyPaths=${seen.join(' ')}
BindPaths=-${roomOf(layout)}:${stateDirectory}
InaccessiblePaths=${hidden.map((path) => `-${path}`).join(' ')}
SyslogIdentifier=${service}-trial
StandardOutput=null
UMask=0077
PrivateUsers=yes
${pids}
PrivateNetwork=yes
PrivateIPC=yes
NoNewPrivileges=yes
DeviceAllow=/dev/loop-control rw
DeviceAllow=block-loop rw
${WALLS.kernel}${WALLS.families}${WALLS.privileges}${WALLS.calls}${LIMITS}`
}

/** Where root mounts the file system of a trial, until the cage has it. */
function roomOf({ service }: Layout): string {
  return `/run/baton/${service}-cage`
}

/** A shell's text, as root and outside of the cage: makes the file system of a trial, or leaves an empty folder of root's. */
function makeRoom(layout: Layout): string {
  const [room, folder, { user }] = [roomOf(layout), rehearsalFolder(layout.stateDirectory), layout]
  const image = `${folder}.image`
  return [
    `umask 022`,
    `umount -l ${room} 2>/dev/null`,
    `mkdir -p ${room}`,
    `u=$$(id -u ${user}) g=$$(id -g ${user})`,
    `k=$$(($$(du -skx ${folder} | cut -f1) * 5 / 2 + ${BASE_KIB}))`,
    `m=$$(($$(sed -n "s/^MemAvailable: *//p" /proc/meminfo | cut -d" " -f1) / 3))`,
    `[ $$k -lt ${MEMORY_KIB} ] && [ $$k -lt $$m ] && mount -t tmpfs -o size=$$((k * 1024)),nr_inodes=${FILES},mode=700,uid=$$u,gid=$$g,nosuid,nodev baton-cage ${room} && exit`,
    `rm -f ${image}`,
    `[ $$((k + ${FREE_KIB})) -lt $$(df -kP ${folder} | tail -n1 | tr -s " " | cut -d" " -f4) ] && truncate -s $$((k * 1024)) ${image} && mkfs.ext4 -q -F -m 0 -N ${FILES} -O ^has_journal -E root_owner=$$u:$$g ${image} && mount -o loop,nosuid,nodev ${image} ${room} && rmdir ${room}/lost+found && chmod 700 ${room}`,
    `rm -f ${image}`,
    `exit 0`,
  ].join('; ')
}

function etc(name: string): string {
  return `/etc/${name}`
}

function request({ stateDirectory }: Layout): string {
  return `${rehearsalFolder(stateDirectory)}/${REHEARSAL_REQUEST}`
}
