// Notifies the service manager: the service is ready, which process is the main one, and which listening sockets to hold while no
// process runs. Never sends STOPPING=1: since systemd v259 it is final, and a draining predecessor is not stopping. Protocol:
// sd_notify(3).

export function hasSupervisor(): boolean {
  return Boolean(process.env['NOTIFY_SOCKET'])
}

/** Sends one notification if a supervisor listens for it; else does nothing. Never throws. */
export async function notifySystemd(lines: string[]): Promise<void> {
  if (await notifyWith(lines, null)) return
  if (!hasSupervisor()) return
  // The fallback runs as a separate process: it needs NotifyAccess=all, or systemd ignores it for a service that is not root.
  const { execFile } = await import('node:child_process')
  await new Promise<void>((resolve) => {
    execFile('systemd-notify', lines, { timeout: 5000 }, () => resolve())
  })
}

/** what the unit gives a start (`TimeoutStartSec=` of deploy/host/place/unit.ts) */
export const USUAL_START_MS = 90_000
/** for what comes before and after the wait that `readyMs` bounds */
const AROUND_MS = 30_000

/**
 * Has the manager wait for this process's start as long as `readyMs` says, if that is longer than usual. Call it before the
 * application's first line: a migration may block the thread from there to the end. Does nothing if no manager waits.
 */
export function allowLongStart(readyMs: number): void {
  if (readyMs + AROUND_MS <= USUAL_START_MS || !hasSupervisor()) return
  const { spawnSync } = process.getBuiltinModule('node:child_process')
  const word = `EXTEND_TIMEOUT_USEC=${(readyMs + AROUND_MS) * 1000}`
  spawnSync('systemd-notify', [word, 'STATUS=starting'], { stdio: 'ignore', timeout: 5000 })
}

/** `notifySystemd` with a descriptor, which the manager duplicates for itself. False if no manager takes it. Never throws. */
export async function notifyWith(lines: string[], descriptor: number | null): Promise<boolean> {
  const path = process.env['NOTIFY_SOCKET']
  if (!path) return false
  try {
    const { sendLetter } = await import('./packets.ts')
    return sendLetter(path, lines.join('\n'), descriptor)
  } catch {
    return false
  }
}
