// Long work of a start is seen: a migration says how far it is, and whoever waits for the switch is told.
// Must hold: it never fails the work, nor delays it by more than one small write; what it writes is lost without harm.

import { renameSync, writeFileSync } from 'node:fs'
import { progressPath } from '../disk/places.ts'
import { ownRelease, ownStateDirectory } from '../own.ts'
import { notifySystemd } from '../sockets/systemd.ts'
import { isCount } from '../words/untrusted.ts'
import type { StartProgress } from '../words/state.ts'
import { formatProgress } from '../words/report.ts'

const EVERY_MS = 250
const TEXT_MAX = 200

let next = 0

/**
 * Says what this start is doing, before it listens: for the panel, `upgrade` and `systemctl status`. Call it as often as you like, also from a
 * loop that blocks: what comes within a quarter of a second is left out, but for the last. `done`, `total`: counts of anything.
 */
export function progress(text: string, done?: number, total?: number): void {
  const isLast = done !== undefined && done === total
  if (performance.now() < next && !isLast) return
  next = performance.now() + EVERY_MS
  try {
    const { service, tag } = ownRelease()
    const line = text.replaceAll(/\s+/g, ' ').slice(0, TEXT_MAX)
    const counts = { ...(isCount(done) ? { done } : {}), ...(isCount(total) ? { total } : {}) }
    const told: StartProgress = { tag, at: new Date().toISOString(), text: line, ...counts }
    void notifySystemd([`STATUS=${formatProgress(told)}`])
    const path = progressPath(ownStateDirectory(service))
    writeFileSync(`${path}.new`, JSON.stringify(told), { mode: 0o600 })
    renameSync(`${path}.new`, path)
  } catch {
    // no text, or no folder: it is there in a managed install only
  }
}
