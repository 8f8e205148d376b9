// What a manager holds when a service is stopped on purpose.

import { existsSync } from 'node:fs'
import { nodeFiles } from '../words/later.ts'
import type { Listener } from './listeners.ts'
import { forget } from './store.ts'
import { hasSupervisor } from './systemd.ts'

/**
 * Before a stop: makes the manager drop the sockets, so that no client waits for a service that was stopped on purpose. Not
 * before a restart: connections then wait in the queue until the service is back.
 */
export async function shutDoor(listeners: readonly Pick<Listener, 'key'>[]): Promise<void> {
  if (!hasSupervisor() || (await isRestarting())) return
  for (const { key } of listeners) await forget(key)
}

/** A file that is there while the supervision without systemd ends the service to start it again. `notify`: its own socket. */
export function restartMark(notify: string): string {
  return `${notify}.restart`
}

/** Whether this process is stopped by a restart: the supervision has left a mark, or the manager has a job for its unit (`systemctl restart`). */
async function isRestarting(): Promise<boolean> {
  if (existsSync(restartMark(process.env['NOTIFY_SOCKET'] ?? ''))) return true
  const unit = /([^/]+\.service)\s*$/.exec(
    await nodeFiles()
      .readFile('/proc/self/cgroup', 'utf8')
      .catch(() => ''),
  )?.[1]
  if (unit === undefined) return false
  // if the sandbox hides D-Bus, the unit's ExecStop= writes the list of jobs into this file
  const written = await nodeFiles()
    .readFile(`/run/baton/${unit}.jobs`, 'utf8')
    .catch(() => null)
  if (written !== null) return namesRestart(written, unit)
  const scope = process.env['MANAGERPID'] === undefined ? [] : ['--user']
  const { execFile } = await import('node:child_process')
  const jobs = await new Promise<string>((resolve) => {
    execFile('systemctl', [...scope, 'list-jobs', '--plain', '--no-legend'], { timeout: 2000 }, (_error, stdout) =>
      resolve(stdout),
    )
  })
  return namesRestart(jobs, unit)
}

function namesRestart(jobs: string, unit: string): boolean {
  return jobs.split('\n').some((line) => {
    const [, name, type] = line.trim().split(/\s+/)
    return name === unit && type === 'restart'
  })
}
