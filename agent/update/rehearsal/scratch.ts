// The trial of a release whose data are not in SQLite: on a copy in a scratch database that the operator has named.
// Must hold: the data themselves are only read; without a scratch database, if the cage cannot reach it, or if the trial itself fails, the
// verdict is `untried`, and the update goes on. What is copied lies in the cage's folder, so whoever ends a killed trial removes it.

import { join } from 'node:path'
import { reasonOf } from '../../words/errors.ts'
import type { Rehearsal, Untried } from '../../words/rehearsal.ts'
import { type Scratch, scratchOf, type SnapshotPlan } from '../../words/snapshot.ts'
import { operatorsUpdate } from '../operator.ts'
import { copiesInto, runOnData, snapshotPlan, toCopy } from '../steps/dump.ts'
import { emptyCage } from './ask-cage.ts'
import {
  cageFolderOf,
  clearCage,
  inCage,
  NEVER,
  NOT_TRIED,
  noteTried,
  refuseIrreversible,
  type ToRehearse,
  whyUntried,
} from './rehearse.ts'

const UNNAMED: Untried = {
  code: 'no_scratch',
  reason: 'the data is not in SQLite, and no scratch database is configured',
  hint: 'set `update.scratch` in the configuration',
}

/** As `rehearse`, for a service whose `snapshot` is a command; does nothing for one without. */
export async function rehearseOnScratch(what: ToRehearse): Promise<void> {
  const { install, operation, release, allowIrreversible, signal } = what
  const plan = await snapshotPlan(install)
  if (plan === null || plan.command === null) return
  const update = await operatorsUpdate(install)
  const scratch = scratchOf(update?.['scratch'])
  const began = performance.now()
  const ended = (more: Partial<Rehearsal>) => {
    operation.trial = { ...NOT_TRIED, reason: '', ...more, tookMs: Math.round(performance.now() - began) }
  }
  if (update?.['trial'] === 'never') return ended(NEVER)
  if (scratch === null) return ended(UNNAMED)
  const folder = await cageFolderOf(install)
  if (typeof folder !== 'string') return ended(folder)
  const cage = { folder, disk: install.disk, service: install.service }
  try {
    await emptyCage(cage)
    const why = await fill(what, folder, plan, scratch)
    if (why !== null) return ended({ code: 'scratch_failed', reason: why })
    const copyMs = Math.round(performance.now() - began)
    signal?.throwIfAborted()
    ended(await inCage(cage, what, { database: null, environment: scratch.environment }, copyMs))
  } catch (cause) {
    ended(whyUntried(cause, signal))
  } finally {
    await clearCage(install)
  }
  const { trial } = operation
  const tried = { sha256: release.asset.sha256, from: install.current, to: release.tag, schema: null }
  if (trial !== undefined) await noteTried(install, { ...tried, trial })
  if (!allowIrreversible) refuseIrreversible(release, operation.trial ?? null)
}

/** Puts a copy into the scratch database. Resolves to why that failed; null: it has not. Throws if no copy can be made: an update needs one. */
async function fill(
  { install }: ToRehearse,
  folder: string,
  plan: SnapshotPlan,
  scratch: Scratch,
): Promise<string | null> {
  const [made] = await copiesInto({ ...(await toCopy(install, plan)), plan: { ...plan, folders: [] } }, folder)
  const file = join(folder, made?.name ?? '')
  const { stateDirectory, disk } = install
  try {
    // its own addresses win: a command that names no database must not take the service's
    const { restore, environment } = scratch
    await runOnData(restore, file, { stateDirectory, plan, environment, what: 'restoring into the scratch database' })
    return null
  } catch (cause) {
    return reasonOf(cause)
  } finally {
    await disk.remove(file)
  }
}
