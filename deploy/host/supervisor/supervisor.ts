// What starts and stops the service on this host, as every command sees it, with and without systemd.

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
}

export interface SupervisorState {
  active: boolean
  /** systemd's word for it, or ours: active, activating, inactive, failed */
  word: string
  mainPid: number | null
  restarts: number | null
}
