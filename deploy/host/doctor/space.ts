// Whether there is room for what an install or an update puts down.

import { stat, statfs } from 'node:fs/promises'
import { join } from 'node:path'
import { ownDatabase } from '../../../agent/install.ts'
import { formatBytes } from '../../lib/progress.ts'
import { failure, type Finding, ok, type Subject } from './finding.ts'
import { nearestExisting } from './mounts.ts'

/** Room for a compressed asset beside what it unpacks to. */
const ASSET_SHARE = 0.5

export async function checkSpace({ layout, executableBytes, receipt }: Subject): Promise<Finding[]> {
  const database = await stat(join(layout.stateDirectory, ownDatabase(layout.service) ?? '')).catch(() => null)
  const needs = new Map<number, { path: string; bytes: number; for: string[] }>()
  const need = async (path: string, bytes: number, what: string) => {
    const existing = await nearestExisting(path)
    const { dev } = await stat(existing)
    const sum = needs.get(dev) ?? { path: existing, bytes: 0, for: [] }
    needs.set(dev, { path: sum.path, bytes: sum.bytes + bytes, for: [...sum.for, what] })
  }
  await need(layout.directory, executableBytes * (1 + (receipt === null ? 0 : ASSET_SHARE)), 'the executable')
  await need(layout.stateDirectory, (database?.size ?? 0) * 1.1 + 1_000_000, 'a snapshot of the database')
  const findings: Finding[] = []
  for (const { path, bytes, for: what } of needs.values()) {
    const { bavail, bsize } = await statfs(path)
    const free = bavail * bsize
    const message = `${formatBytes(free)} free at ${path}, ${formatBytes(bytes)} needed for ${what.join(' and ')}`
    findings.push(
      free >= bytes
        ? ok('space', message)
        : failure(
            'space',
            `not enough space: ${message}`,
            'make room, or choose another place with `--prefix` or `--state-dir`',
          ),
    )
  }
  return findings
}
