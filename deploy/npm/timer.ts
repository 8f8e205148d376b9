// The timer that asks the registry for newer versions. Pure, but for `keepTimer`.

import { existsSync } from 'node:fs'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { formatCommand, run } from '../lib/shell.ts'
import { systemctlFor, unitFolderFor } from '../lib/systemctl.ts'

const NAME = 'baton-npm'

export interface TimerOptions {
  isRoot: boolean
  /** the command line that updates all services of this place */
  command: readonly string[]
  /** where npm was found */
  path: string
}

/** Name of a unit -> its text. At most once an hour at a moment of its own: the registry is everybody's. */
export function timerUnits({ command, path }: Pick<TimerOptions, 'command' | 'path'>): Record<string, string> {
  return {
    [`${NAME}.service`]: `# written by deploy-npm.sh
[Unit]
Description=Baton: asks the npm registry for newer versions of the services that came from it
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
# 6: another run works there; 7: a version was refused, which the log says
SuccessExitStatus=6 7
`,
    [`${NAME}.timer`]: `# written by deploy-npm.sh
[Unit]
Description=Baton: when to ask the npm registry

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
  const { isRoot, command } = options
  const hint = `nobody asks the registry by itself here: run \`${formatCommand(command)}\` once a day`
  if (!existsSync('/run/systemd/system')) return `there is no systemd, so ${hint}`
  const scope = isRoot ? 'system' : 'user'
  const folder = unitFolderFor(scope, { home: homedir(), environment: process.env })
  const systemctl = systemctlFor(scope)
  await mkdir(folder, { recursive: true })
  let changed = false
  for (const [name, text] of Object.entries(timerUnits(options))) {
    const path = join(folder, name)
    if ((await readFile(path, 'utf8').catch(() => '')) === text) continue
    await writeFile(path, text, { mode: 0o644 })
    changed = true
  }
  if (changed) await run([...systemctl, 'daemon-reload'], { allowFailure: true })
  const { exitCode, stderr } = await run([...systemctl, 'enable', '--now', `${NAME}.timer`], { allowFailure: true })
  return exitCode === 0
    ? `${NAME}.timer asks the registry every six hours`
    : `${NAME}.timer was not started (${stderr.trim().slice(0, 200)}), so ${hint}`
}
