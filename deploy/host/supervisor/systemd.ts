// systemd as the supervisor. The unit belongs to root (or to the user); nothing here reads the service's files.

import { constants } from 'node:os'
import { type Receipt, STOP_MAX_MS } from '../../../agent/install.ts'
import { BatonError, UPDATE_BOUNDS } from '../../../agent/words.ts'
import { run } from '../../lib/shell.ts'
import { systemctlFor } from '../../lib/systemctl.ts'
import type { Crashes } from './crashes.ts'
import type { CommandSupervisor, Supervisor } from './supervisor.ts'

/** systemd itself ends a start that takes too long, which may have a migration in it */
const START_TIMEOUT_MS = UPDATE_BOUNDS.readyMs[1] + 120_000
/** and a stop, for which a service may ask for more time */
const STOP_TIMEOUT_MS = STOP_MAX_MS + 120_000
const SHOW_TIMEOUT_MS = 15_000

/** Whether this systemd manager answers. */
export async function hasSystemd(scope: 'system' | 'user'): Promise<boolean> {
  if (process.platform !== 'linux') return false
  try {
    const { stdout } = await run([...systemctlFor(scope), 'is-system-running'], {
      allowFailure: true,
      timeoutMs: SHOW_TIMEOUT_MS,
    })
    return ['running', 'degraded', 'starting', 'initializing', 'maintenance'].includes(stdout.trim())
  } catch {
    return false
  }
}

/** Properties of a unit by name. systemd has some even for a unit that does not exist. */
export async function showUnit(
  scope: 'system' | 'user',
  unit: string,
  names: readonly string[],
): Promise<Record<string, string>> {
  const properties = names.map((name) => `--property=${name}`)
  const { stdout } = await run([...systemctlFor(scope), 'show', ...properties, unit], {
    allowFailure: true,
    timeoutMs: SHOW_TIMEOUT_MS,
    env: { TZ: 'UTC' }, // for its times
  })
  return parseShow(stdout)
}

/** Pure: the output of `systemctl show`. */
export function parseShow(text: string): Record<string, string> {
  const pairs = text.split('\n').filter((line) => line.includes('='))
  return Object.fromEntries(pairs.map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]))
}

/** Pure: the supervisor's words in messages. */
export function systemdWords({
  service,
  scope,
}: Pick<Receipt, 'service' | 'scope'>): Pick<Supervisor, 'description' | 'logCommand'> {
  const unit = `${service}.service`
  return {
    description: `${scope === 'system' ? 'systemd' : 'systemd --user'}, ${unit}`,
    logCommand: `journalctl ${scope === 'system' ? '' : '--user '}-u ${unit}`,
  }
}

const SHOWN = [
  'ActiveState',
  'SubState',
  'MainPID',
  'NRestarts',
  'ExecMainCode',
  'ExecMainStatus',
  'ExecMainExitTimestamp',
] as const
type Shown = Readonly<Record<string, string>>

function wordOf(shown: Shown): string {
  return shown['SubState'] === 'auto-restart' ? 'auto-restart' : (shown['ActiveState'] ?? 'unknown')
}

/** Pure. systemd counts restarts, and knows how the main process has ended until the next one begins. */
export function crashesFrom(shown: Shown): Crashes | null {
  const word = wordOf(shown)
  const restarts = Number(shown['NRestarts'] ?? 0)
  const count = word === 'auto-restart' ? restarts + 1 : word === 'failed' ? Math.max(restarts, 1) : restarts
  if (!(count > 0) || word === 'inactive' || word === 'deactivating') return null
  const status = Number(shown['ExecMainStatus'] ?? 0)
  const how = shown['ExecMainCode']
  const [, day, time] = / (\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d) UTC$/.exec(shown['ExecMainExitTimestamp'] ?? '') ?? []
  const hasEnded = how === CLD.exited || how === CLD.killed || how === CLD.dumped
  const signal = Object.entries(constants.signals).find(([, number]) => number === status)?.[0] ?? `signal ${status}`
  return {
    count,
    isLooping: count > 1 && (word === 'auto-restart' || word === 'activating'),
    at: hasEnded && time !== undefined ? `${day}T${time}Z` : null,
    code: how === CLD.exited ? status : null,
    signal: hasEnded && how !== CLD.exited ? signal : null,
    said: null,
  }
}

/** si_code of a process that has ended: sigaction(2) */
const CLD = { exited: '1', killed: '2', dumped: '3' }

async function begin(verb: 'start' | 'restart', receipt: Pick<Receipt, 'service' | 'scope'>): Promise<void> {
  const systemctl = systemctlFor(receipt.scope)
  const unit = `${receipt.service}.service`
  await run([...systemctl, 'reset-failed', unit], { allowFailure: true })
  const { exitCode, stderr } = await run([...systemctl, verb, unit], {
    allowFailure: true,
    timeoutMs: START_TIMEOUT_MS + (verb === 'restart' ? STOP_TIMEOUT_MS : 0),
  })
  if (exitCode === 0) return
  throw new BatonError('service_down', `${verb}ing ${unit}: ${stderr.trim().split('\n')[0] ?? ''}`, {
    hint: `run \`${systemdWords(receipt).logCommand} -n 50\` to see why`,
  })
}

export function systemdSupervisor(receipt: Pick<Receipt, 'service' | 'scope'>): CommandSupervisor {
  const { service, scope } = receipt
  const systemctl = systemctlFor(scope)
  const unit = `${service}.service`
  return {
    ...systemdWords(receipt),
    async state() {
      const shown = await showUnit(scope, unit, SHOWN)
      const word = wordOf(shown)
      const pid = Number(shown['MainPID'] ?? 0)
      return {
        active: word === 'active' || word === 'activating' || word === 'reloading' || word === 'auto-restart',
        word,
        mainPid: pid > 0 ? pid : null,
        restarts: shown['NRestarts'] === undefined ? null : Number(shown['NRestarts']),
        crashes: crashesFrom(shown),
      }
    },
    start: () => begin('start', receipt),
    async stop() {
      await run([...systemctl, 'stop', unit], { timeoutMs: STOP_TIMEOUT_MS })
    },
    restart: () => begin('restart', receipt),
  }
}
