// Checks that there is room for what an install or an update writes. Calculates it with the update's own code.

import {
  mebibytes,
  type Need,
  needsBeside,
  needsOfAsset,
  needsOfExecutable,
  ownDatabase,
  roomFor,
} from '../../../agent/install.ts'
import type { Outside } from '../service/outside.ts'
import { newest } from './feed.ts'
import { failure, type Finding, ok, type Subject } from './finding.ts'

/** For an install of a program of `executableBytes`. */
export async function checkSpace(subject: Subject): Promise<Finding[]> {
  return await checkRoom(subject, needsOfExecutable(subject.layout.directory, subject.executableBytes))
}

/** For an update to the newest release. If the feed has none or cannot be asked, assumes one as large as this program. */
export async function checkUpdateSpace(subject: Subject, outside: Outside): Promise<Finding[]> {
  const found = subject.receipt === null ? null : await newest(subject, outside).catch(() => null)
  const release = found?.release ?? null
  if (release === null) return await checkSpace(subject)
  return await checkRoom(subject, needsOfAsset(subject.layout.directory, release.asset))
}

async function checkRoom({ layout }: Subject, ofExecutable: readonly Need[]): Promise<Finding[]> {
  const { service, stateDirectory } = layout
  const database = ownDatabase(service, stateDirectory)
  const needs = [...ofExecutable, ...(await needsBeside({ database, stateDirectory }))]
  return (await roomFor(needs)).map(({ directory: at, freeBytes, neededBytes, freeInodes, neededInodes, what }) => {
    if (freeInodes < neededInodes) {
      const message = `not enough inodes: ${freeInodes} free at ${at}, ${neededInodes} needed for ${what}`
      return failure('space', message, 'remove some files there; `df -i` counts them')
    }
    const message = `${mebibytes(freeBytes, Math.floor)} free at ${at}, ${mebibytes(neededBytes)} needed for ${what}`
    const hint = 'make room, or choose another place with `--prefix` or `--state-dir`'
    return freeBytes >= neededBytes ? ok('space', message) : failure('space', `not enough space: ${message}`, hint)
  })
}
