// How commands start and stop the service on this host, with and without systemd.

import type { Crashes } from './crashes.ts'

export interface Supervisor {
  /** for messages: `systemd, beacon.service` */
  description: string
  /** what to run to read the service's log */
  logCommand: string
  state(): Promise<SupervisorState>
  /** Resolves when the supervisor says that the service runs. Throws service_down. */
  start(): Promise<void>
  /** Lets the service drain; resolves when no process of it is left. */
  stop(): Promise<void>
}

/** As a command has it. What acts as the service's user may not ask root for a restart. */
export interface CommandSupervisor extends Supervisor {
  /** As `stop` and `start`, but clients wait meanwhile, if something keeps the listening sockets. Throws service_down. */
  restart(): Promise<void>
}

export interface SupervisorState {
  active: boolean
  /** systemd's word, such as auto-restart; or the detached supervisor's: active, activating, inactive, failed. failed: given up */
  word: string
  mainPid: number | null
  restarts: number | null
  /** null: it has not ended by itself since it was started, or that is not known */
  crashes: Crashes | null
}
