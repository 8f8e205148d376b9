// The units of the cage in which a release is tried on a copy of the data (agent/update/rehearsal/). Pure.
// Must hold: even an attacker in the cage reaches no process, socket or network of the host, and can write nothing but the copy. No
// path that root opens for the cage leads through a folder of the service's user.

import { REHEARSAL_REPORT, REHEARSAL_REQUEST, rehearsalFolder } from '../../../agent/install.ts'
import type { Layout } from './layout.ts'
import { MARK, WALLS } from './unit.ts'

/** The first systemd that can give a unit its own pid namespace. */
const PRIVATE_PIDS_SINCE = 257

/** What it may use. */
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
Description=${layout.service}: starts the cage when a release is to be tried on a copy of the data

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
 * - `/run`, `/dev/shm` and `/srv` are empty, the network has only its own loopback, everything but the copy is read-only.
 * - `LimitNPROC=` counts inside the user namespace. The `Limit…=` settings hold on a host without cgroup controllers, too.
 * - `ConditionPathExists=`: without it, the removal of the request would start a second cage.
 * - `ExecStopPost=` empties the folder inside the cage, when everything else in it has ended; the report stays.
 */
export function cageUnit(layout: Layout, systemdVersion: number): string {
  const { service, executable, user, stateDirectory, configDirectory, directory } = layout
  const hasPids = systemdVersion >= PRIVATE_PIDS_SINCE
  const outside = hasPids
    ? ''
    : '/usr/bin/unshare --pid --fork --kill-child=SIGKILL /usr/bin/setpriv --ambient-caps -all '
  const pids = hasPids
    ? 'PrivatePIDs=yes\nCapabilityBoundingSet=\nRestrictNamespaces=yes'
    : 'AmbientCapabilities=CAP_SYS_ADMIN\nCapabilityBoundingSet=CAP_SYS_ADMIN\nRestrictNamespaces=pid'
  const home = /^\/(home|root)(\/|$)/.test(directory) ? 'read-only' : 'yes'
  return `${MARK}
[Unit]
Description=${service}: tries a release on a copy of the data
ConditionPathExists=${request(layout)}
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStart=${outside}${executable} as-service in-cage
ExecStopPost=-/bin/sh -c 'chmod -R u+rwX . ; find . -mindepth 1 ! -path ./${REHEARSAL_REPORT} -delete ; find . -maxdepth 1 -path ./${REHEARSAL_REPORT} ! -type f -delete'
${layout.node === null ? '' : `Environment=BATON_NODE=${layout.node}\n`}User=${user}
Group=${user}
WorkingDirectory=${stateDirectory}
BindPaths=${rehearsalFolder(stateDirectory)}:${stateDirectory}
SyslogIdentifier=${service}-rehearse
StandardOutput=null
UMask=0077
PrivateUsers=yes
${pids}
PrivateNetwork=yes
PrivateIPC=yes
TemporaryFileSystem=/run:ro /dev/shm /srv:ro
InaccessiblePaths=-${configDirectory} -${rehearsalFolder(stateDirectory)} -${layout.environmentFile}
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=${home}
${WALLS.kernel}${WALLS.families}${WALLS.privileges}${WALLS.calls}${LIMITS}`
}

function request({ stateDirectory }: Layout): string {
  return `${rehearsalFolder(stateDirectory)}/${REHEARSAL_REQUEST}`
}
