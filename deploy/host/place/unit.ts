// The systemd units, as text. Pure; golden tests hold them and `systemd-analyze` judges them.
// Must never break: nothing in a unit is the operator's. What they change goes into drop-ins and the environment file,
// which no command of ours writes or removes.

import type { Layout } from './layout.ts'

/** First line of every file that is ours to replace. */
export const MARK = '# Written by the installer, which will replace it.'

/**
 * `systemd-analyze security` gives the system unit 1.7. What is left open, on purpose: the network, and W^X
 * (`MemoryDenyWriteExecute=` kills a JIT compiler). `ReadWritePaths=` names the directory of the executable, not the
 * file: an update renames inside it.
 */
const HARDENING = `NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
ProcSubset=pid
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM
UMask=0077`

/** What a manager without privileges can enforce. */
const HARDENING_USER = `NoNewPrivileges=yes
RestrictRealtime=yes
LockPersonality=yes
SystemCallArchitectures=native
UMask=0077`

/**
 * The service. `Type=notify` with `NotifyAccess=all`: a handover moves the main process. `KillMode=mixed`: a stop asks
 * the main process only. `ExecStop=` waits for it: a main process that came by a handover was not started by systemd, and
 * without this systemd would send SIGTERM and, not waiting for what is not its child, SIGKILL at once. `Restart=always`: should the main process end well while nothing follows it, that is a crash too.
 * `ExecStopPost=` runs after every end of the service and before every restart, so the backup executable can take a
 * release on probation back long before the start limit (by a shell: systemd has a line in the journal for each program that is
 * not there); `OnFailure=` fires only behind it, and is the second net.
 */
export function serviceUnit(layout: Layout): string {
  const { executable, backup, configPath, service } = layout
  const system = layout.scope === 'system'
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
ExecStop=-/bin/sh -c 'kill -TERM $$MAINPID && while kill -0 $$MAINPID; do sleep 0.1; done 2>/dev/null'
ExecStopPost=-/bin/sh -c '[ ! -x ${backup} ] || exec ${backup} rescue'
${nodeOf(layout)}EnvironmentFile=-${layout.environmentFile}
${system ? `User=${layout.user}\nGroup=${layout.user}\nWorkingDirectory=${layout.stateDirectory}\n` : ''}KillMode=mixed
TimeoutStartSec=90
TimeoutStopSec=60
Restart=always
RestartSec=500ms
SyslogIdentifier=${service}
LimitNOFILE=65536
FileDescriptorStoreMax=64
${sandbox(layout)}

[Install]
WantedBy=${system ? 'multi-user.target' : 'default.target'}
`
}

/**
 * Runs once the service is given up: the backup executable takes the release back, and only then is it started again. A
 * rescue that finds nothing to do is a condition that does not hold, not a failure.
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

/** A unit's PATH is not the one of whoever installed it. */
function nodeOf({ node }: Layout): string {
  return node === null ? '' : `Environment=BATON_NODE=${node}\n`
}

function head(layout: Layout): string {
  const { service, dropIns, environmentFile } = layout
  const edit = layout.scope === 'system' ? `systemctl edit ${service}` : `systemctl --user edit ${service}`
  return `${MARK}
# Your own changes belong into ${dropIns}/ (\`${edit}\`) and ${environmentFile},
# which the installer leaves alone.
`
}

function sandbox(layout: Layout): string {
  if (layout.scope === 'user') return HARDENING_USER
  const { service, directory, stateDirectory, feedFolder, stateIsStandard } = layout
  const state = stateIsStandard
    ? `StateDirectory=${service}\nStateDirectoryMode=0750\nReadWritePaths=${directory}`
    : `ReadWritePaths=${directory} ${stateDirectory}`
  const inHome = (path: string | null) => path !== null && /^\/(home|root|run\/user)(\/|$)/.test(path)
  // a home that holds the service itself stays visible; one that holds only the feed is empty but for that
  const home = inHome(directory) || inHome(stateDirectory) ? 'read-only' : inHome(feedFolder) ? 'tmpfs' : 'yes'
  const hidden = home === 'tmpfs' || /^\/(var\/)?tmp\//.test(feedFolder ?? '')
  const feed = hidden ? `\nBindReadOnlyPaths=-${feedFolder ?? ''}` : ''
  return `${state}${feed}\n${HARDENING.replace('ProtectHome=yes', `ProtectHome=${home}`)}`
}
