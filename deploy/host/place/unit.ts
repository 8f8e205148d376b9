// The systemd units, as text. Pure; golden tests hold them and `systemd-analyze` judges them.
// Must never break: an operator never has to edit a unit. Operators put their changes into drop-ins and the environment file, which no
// command here writes or removes.

import { rehearsalFolder } from '../../../agent/install.ts'
import type { Layout } from './layout.ts'

/** First line of every file that the installer may replace. */
export const MARK = '# Written by the installer, which will replace it.'

/**
 * Walls that the service and its cage share, each line with its end. Left open, because ordinary packages break there, and a process without
 * capabilities gains nothing: the whole of /proc beside other users' processes (`os.cpus()` is empty under `ProcSubset=pid`), `nice`,
 * `ionice` and `taskset` (`@resources`), a chown to itself, and `capset`, without which `ip` ends at once.
 */
export const WALLS = {
  kernel: `PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
`,
  families: `RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
`,
  privileges: `RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
`,
  calls: `SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallFilter=@chown capset
SystemCallErrorNumber=EPERM
`,
} as const

/**
 * `systemd-analyze security` gives the system unit 1.7. Two things are left open on purpose: the network, and W^X
 * (`MemoryDenyWriteExecute=` kills a JIT compiler). `ReadWritePaths=` names the directory of the executable, not the
 * file: an update renames inside it.
 *
 * A port below 1024 takes CAP_NET_BIND_SERVICE, and nothing else has it.
 *
 * D-Bus is hidden: over it any user may have logind start a manager for it, outside of this sandbox, that outlives a stop.
 */
const HARDENING = `NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
${WALLS.kernel}InaccessiblePaths=-/run/dbus -/run/systemd/private -/run/user
${WALLS.families}RestrictNamespaces=yes
${WALLS.privileges}RemoveIPC=yes
${WALLS.calls}UMask=0077`

/** What a systemd manager without privileges can enforce. */
const HARDENING_USER = `NoNewPrivileges=yes
RestrictRealtime=yes
LockPersonality=yes
SystemCallArchitectures=native
UMask=0077`

/**
 * The service's unit.
 *
 * - `Type=notify` with `NotifyAccess=all`: a handover moves the main process.
 * - `KillMode=mixed`: a stop sends SIGTERM to the main process only.
 * - `ExecStop=` waits for the main process. After a handover that process is not systemd's child, so systemd would not wait for
 *   it: it would send SIGTERM, and SIGKILL at once.
 * - `Restart=always`: if the main process exits with 0 and no successor has taken over, that is a crash too.
 * - `OOMPolicy=continue`: if memory runs out in a switch, the kernel ends the new process, and the old one must go on.
 * - The first `ExecStop=` writes systemd's jobs to a file, as root: the service must tell a restart from a stop, and cannot ask systemd.
 * - `ExecStopPost=` runs after every end of the service and before every restart. So the backup executable can revert a release on
 *   probation long before the start limit. A shell runs it, because systemd logs an error for each program that does not exist.
 * - `OnFailure=` fires only after the start limit, as a second net.
 */
export function serviceUnit(layout: Layout): string {
  const { executable, backup, configPath, service } = layout
  const system = layout.scope === 'system'
  // agent/sockets/store.ts reads it
  const jobs = `/run/baton/${service}.service.jobs`
  return `${head(layout)}
[Unit]
Description=${service}
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=120
StartLimitBurst=6
OnFailure=${service}-rescue.service

[Service]
Type=notify
NotifyAccess=all
ExecStart=${executable} serve --config ${configPath}
${system ? `ExecStop=-+/bin/sh -c 'umask 022; mkdir -p /run/baton; systemctl list-jobs --plain --no-legend >${jobs}'\n` : ''}ExecStop=-/bin/sh -c 'kill -TERM $$MAINPID && while kill -0 $$MAINPID; do sleep 0.1; done 2>/dev/null'
${system ? `ExecStop=-+/bin/rm -f ${jobs}\n` : ''}ExecStopPost=-/bin/sh -c '[ ! -x ${backup} ] || exec ${backup} rescue'
${nodeOf(layout)}${environmentFileOf(layout)}EnvironmentFile=-${layout.environmentFile}
${system ? `User=${layout.user}\nGroup=${layout.user}\nWorkingDirectory=${layout.stateDirectory}\n` : ''}KillMode=mixed
TimeoutStartSec=90
TimeoutStopSec=60
Restart=always
RestartSec=500ms
OOMPolicy=continue
SyslogIdentifier=${service}
LimitNOFILE=65536
FileDescriptorStoreMax=64
${withWishes(sandbox(layout), layout)}

[Install]
WantedBy=${system ? 'multi-user.target' : 'default.target'}
`
}

/**
 * Runs once systemd has given the service up. The backup executable puts itself back, and only then is the service started again.
 * If the rescue has nothing to do, that counts as an unmet condition, not as a failure.
 */
export function rescueUnit(layout: Layout): string {
  const { service, backup } = layout
  const system = layout.scope === 'system'
  const systemctl = system ? '+systemctl' : 'systemctl --user'
  return `${head(layout)}
[Unit]
Description=${service}: puts the backup executable back
ConditionPathExists=${backup}

[Service]
Type=oneshot
${nodeOf(layout)}ExecCondition=${backup} rescue --given-up
ExecStart=${systemctl} reset-failed ${service}.service
ExecStart=${systemctl} --no-block start ${service}.service
${system ? `User=${layout.user}\nGroup=${layout.user}\n` : ''}SyslogIdentifier=${service}
${sandbox(layout)}
`
}

/** Names the Node: a unit's PATH is not the PATH of the person who installed it. */
function nodeOf({ node }: Layout): string {
  return node === null ? '' : `Environment=BATON_NODE=${node}\n`
}

function head(layout: Layout): string {
  const { service, dropIns, environmentFile } = layout
  const edit = layout.scope === 'system' ? `systemctl edit ${service}` : `systemctl --user edit ${service}`
  return `${MARK}
# Your own changes belong in ${dropIns}/ (\`${edit}\`) and ${environmentFile},
# which the installer leaves alone.
`
}

/** The capability that a process needs for a port below 1024. */
export const LOW_PORT_CAPABILITY = 'CAP_NET_BIND_SERVICE'

/** The author's comes first: the operator's own counts more. */
function environmentFileOf({ asks }: Layout): string {
  return asks?.environmentFile === undefined ? '' : `EnvironmentFile=-${asks.environmentFile}\n`
}

/**
 * What the operator has confirmed, and a low port. Only the service gets it: what root's commands and the rescue start has none of it.
 * `-`: a service whose disk is not there yet starts, and cannot write there.
 */
function withWishes(text: string, { lowPort, asks, service }: Layout): string {
  const { readWritePaths = [], devices = [], capabilities = [], runtimeDirectory = false } = asks ?? {}
  const all = [...new Set([...(lowPort === null ? [] : [LOW_PORT_CAPABILITY]), ...capabilities])].join(' ')
  const allowed = devices.map((path) => `\nDeviceAllow=${path} rw`).join('')
  const folder = `RuntimeDirectory=${service}\nRuntimeDirectoryMode=0750\nRuntimeDirectoryPreserve=restart\n`
  return `${runtimeDirectory ? folder : ''}${text}`
    .replace(/^(CapabilityBoundingSet|AmbientCapabilities)=$/gm, (line) => `${line}${all}`)
    .replace(/^ReadWritePaths=.*$/m, (line) => [line, ...readWritePaths.map((path) => `-${path}`)].join(' '))
    .replace(/^PrivateDevices=yes$/m, (line) =>
      devices.length === 0 ? line : `PrivateDevices=no\nDevicePolicy=closed${allowed}`,
    )
}

function sandbox(layout: Layout): string {
  if (layout.scope === 'user') return HARDENING_USER
  const { service, directory, stateDirectory, feedFolder, stateIsStandard } = layout
  const state = stateIsStandard
    ? `StateDirectory=${service}\nStateDirectoryMode=0750\nReadWritePaths=${directory} -${rehearsalFolder(stateDirectory)}`
    : `ReadWritePaths=${directory} ${stateDirectory}`
  const inHome = (path: string | null) => path !== null && /^\/(home|root|run\/user)(\/|$)/.test(path)
  // if a home holds the service itself, homes stay visible; if one holds only the feed, only the feed is visible
  const home = inHome(directory) || inHome(stateDirectory) ? 'read-only' : inHome(feedFolder) ? 'tmpfs' : 'yes'
  const hidden = home === 'tmpfs' || /^\/(var\/)?tmp\//.test(feedFolder ?? '')
  const feed = hidden ? `\nBindReadOnlyPaths=-${feedFolder ?? ''}` : ''
  const inRun = [directory, stateDirectory, feedFolder ?? ''].some((path) => path.startsWith('/run/user/'))
  const hardening = HARDENING.replace('ProtectHome=yes', `ProtectHome=${home}`)
  return `${state}${feed}\n${inRun ? hardening.replace(' -/run/user', '') : hardening}`
}
