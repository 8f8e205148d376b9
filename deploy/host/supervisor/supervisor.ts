// What starts and stops the service on this host: systemd, or the small supervision of `supervise.ts`. One interface, so
// that every command above it works the same with and without systemd.

import type { Receipt } from '../../../agent/install.ts'
import { BatonError } from '../../../agent/words.ts'
import { run } from '../../lib/shell.ts'
import { detachedSupervisor } from './supervise.ts'

export interface Supervisor {
  /** for messages: `systemd (beacon.service)` */
  description: string
  /** what to run to read the service's log */
  logCommand: string
  state(): Promise<SupervisorState>
  /** Returns when the supervisor says that it runs. Throws service_down. */
  start(): Promise<void>
  /** Lets it drain; returns when no process of the service is left. */
  stop(): Promise<void>
  /** The last lines of the service's log. */
  tail(lines: number): Promise<string>
}

export interface SupervisorState {
  active: boolean
  /** systemd's word for it, or ours: active, activating, inactive, failed */
  word: string
  mainPid: number | null
  restarts: number | null
}

const START_TIMEOUT_MS = 120_000

export function supervisorFor(receipt: Receipt): Supervisor {
  return receipt.supervisor === 'none' ? detachedSupervisor(receipt) : systemdSupervisor(receipt)
}

export function systemctlFor(scope: 'system' | 'user'): string[] {
  return scope === 'system' ? ['systemctl'] : ['systemctl', '--user']
}

/** True where this systemd manager can be talked to. */
export async function hasSystemd(scope: 'system' | 'user'): Promise<boolean> {
  if (process.platform !== 'linux') return false
  try {
    const { stdout } = await run([...systemctlFor(scope), 'is-system-running'], {
      allowFailure: true,
      timeoutMs: 15_000,
    })
    return ['running', 'degraded', 'starting', 'initializing', 'maintenance'].includes(stdout.trim())
  } catch {
    return false
  }
}

/** Pure: the output of `systemctl show`. */
export function parseShow(text: string): Record<string, string> {
  const pairs = text.split('\n').filter((line) => line.includes('='))
  return Object.fromEntries(pairs.map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]))
}

function systemdSupervisor({ service, scope }: Receipt): Supervisor {
  const systemctl = systemctlFor(scope)
  const unit = `${service}.service`
  const journal = scope === 'system' ? ['journalctl', '-u', unit] : ['journalctl', '--user', '-u', unit]
  return {
    description: `${scope === 'system' ? 'systemd' : 'systemd --user'} (${unit})`,
    logCommand: journal.join(' '),
    async state() {
      const properties = ['ActiveState', 'SubState', 'MainPID', 'NRestarts'].map((name) => `--property=${name}`)
      const { stdout } = await run([...systemctl, 'show', ...properties, unit], {
        allowFailure: true,
        timeoutMs: 15_000,
      })
      const shown = parseShow(stdout)
      const word = shown['ActiveState'] ?? 'unknown'
      const pid = Number(shown['MainPID'] ?? 0)
      return {
        active: word === 'active' || word === 'activating' || word === 'reloading',
        word: shown['SubState'] === 'auto-restart' ? 'auto-restart' : word,
        mainPid: pid > 0 ? pid : null,
        restarts: shown['NRestarts'] === undefined ? null : Number(shown['NRestarts']),
      }
    },
    async start() {
      await run([...systemctl, 'reset-failed', unit], { allowFailure: true })
      const { exitCode, stderr } = await run([...systemctl, 'start', unit], {
        allowFailure: true,
        timeoutMs: START_TIMEOUT_MS,
      })
      if (exitCode === 0) return
      throw new BatonError('service_down', `starting ${unit}: ${stderr.trim().split('\n')[0] ?? ''}`, {
        hint: `\`${journal.join(' ')} -n 50\` says why`,
      })
    },
    async stop() {
      await run([...systemctl, 'stop', unit], { timeoutMs: START_TIMEOUT_MS })
    },
    async tail(lines) {
      const { stdout } = await run([...journal, '-n', String(lines), '--no-pager', '-o', 'cat'], { allowFailure: true })
      return stdout
    },
  }
}
