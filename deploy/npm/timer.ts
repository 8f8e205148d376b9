// The timer that asks the registry for newer versions. Pure, but for `keepTimer` and `endTimer`.

import { createHash } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { formatCommand, run } from '../lib/shell.ts'
import { systemctlFor, unitFolderFor } from '../lib/systemctl.ts'

export interface TimerOptions {
  isRoot: boolean
  /** the place that was named; null: the usual one */
  home: string | null
  /** the command line that updates all services of this place */
  command: readonly string[]
  /** where npm was found */
  path: string
}

/** Each place has its own. */
const nameFor = (home: string | null) =>
  home === null ? 'baton-npm' : `baton-npm-${createHash('sha256').update(home).digest('hex').slice(0, 8)}`

/** Name of a unit -> its text. At most once an hour at a moment of its own: the registry is everybody's. */
export function timerUnits({ home, command, path }: Omit<TimerOptions, 'isRoot'>): Record<string, string> {
  return {
    [`${nameFor(home)}.service`]: `# written by deploy-npm.sh
[Unit]
Description=Baton: check the npm registry for newer versions of the services installed from it
Wants=network-online.target
After=network-online.target

[Service]
Type=oneshot
Environment="PATH=${path.replaceAll(/["\\%\n]/g, '')}"
ExecStart=${formatCommand(command)}
Nice=10
CPUWeight=20
IOWeight=20
IOSchedulingClass=idle
TimeoutStartSec=3h
KillMode=control-group
# 6: another run is in progress; 7: a version was refused, see the log
SuccessExitStatus=6 7
`,
    [`${nameFor(home)}.timer`]: `# written by deploy-npm.sh
[Unit]
Description=Baton: schedule for checking the npm registry

[Timer]
OnBootSec=15min
OnUnitInactiveSec=6h
RandomizedDelaySec=1h

[Install]
WantedBy=timers.target
`,
  }
}

/** Writes and starts it. Resolves to a sentence. */
export async function keepTimer(options: TimerOptions): Promise<string> {
  const { isRoot, home, command } = options
  const timer = `${nameFor(home)}.timer`
  const hint = `no timer checks the registry on this host: run \`${formatCommand(command)}\` once a day`
  if (!existsSync('/run/systemd/system')) return `there is no systemd, so ${hint}`
  const { folder, systemctl } = systemdOf(isRoot)
  await mkdir(folder, { recursive: true })
  let changed = false
  for (const [name, text] of Object.entries(timerUnits(options))) {
    const path = join(folder, name)
    if ((await readFile(path, 'utf8').catch(() => '')) === text) continue
    await writeFile(path, text, { mode: 0o644 })
    changed = true
  }
  if (changed) await run([...systemctl, 'daemon-reload'], { allowFailure: true })
  const { exitCode, stderr } = await run([...systemctl, 'enable', '--now', timer], { allowFailure: true })
  return exitCode === 0
    ? `${timer} checks the registry every six hours`
    : `${timer} was not started (${stderr.trim().slice(0, 200)}), so ${hint}`
}

/** Nothing needs it any more. Resolves to the name of what was removed; null: there was none, or systemd did not stop it. */
export async function endTimer({ isRoot, home }: Pick<TimerOptions, 'isRoot' | 'home'>): Promise<string | null> {
  const { folder, systemctl } = systemdOf(isRoot)
  const timer = `${nameFor(home)}.timer`
  if (!existsSync(join(folder, timer))) return null
  // this reloads systemd, and nothing does later: the service may be what runs this, and ends as its unit says
  const { exitCode } = await run([...systemctl, 'disable', '--now', timer], { allowFailure: true })
  if (exitCode !== 0) return null
  for (const name of [timer, `${nameFor(home)}.service`]) await rm(join(folder, name), { force: true })
  return timer
}

function systemdOf(isRoot: boolean): { folder: string; systemctl: string[] } {
  const scope = isRoot ? 'system' : 'user'
  return {
    folder: unitFolderFor(scope, { home: homedir(), environment: process.env }),
    systemctl: systemctlFor(scope),
  }
}
