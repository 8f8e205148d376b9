// What the service manager must be told: that the service is ready, which process is the main one, and which listening sockets
// it is to hold while no process lives. Never STOPPING=1: since systemd v259 it is final, and a predecessor that drains is not
// stopping. Protocol: sd_notify(3).

/** Sends one notification where a supervisor listens for it; does nothing elsewhere. Never throws. */
export async function notifySystemd(lines: string[]): Promise<void> {
  if (await notifyWith(lines, null)) return
  if ((process.env['NOTIFY_SOCKET'] ?? '') === '') return
  // The fallback is a process of its own: it needs NotifyAccess=all, or systemd ignores it for a service that is not root.
  const { execFile } = await import('node:child_process')
  await new Promise<void>((resolve) => {
    execFile('systemd-notify', lines, { timeout: 5000 }, () => resolve())
  })
}

/** The same with a descriptor, of which the manager keeps one of its own. False where nobody takes it. Never throws. */
export async function notifyWith(lines: string[], descriptor: number | null): Promise<boolean> {
  const path = process.env['NOTIFY_SOCKET']
  if (path === undefined || path === '') return false
  try {
    const { sendLetter } = await import('./packets.ts')
    return sendLetter(path, lines.join('\n'), descriptor)
  } catch {
    return false
  }
}
