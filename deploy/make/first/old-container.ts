// What the first code of a release does in a container that is to follow another one (agent/handover/container-gate.ts).

import { HOLDER, waitAtContainerGate } from '../../../agent/first.ts'
import { refuse } from './release.ts'

/** In a container that is to follow another: unpacks, so that nothing is left to do when the other has ended, and waits for that. */
export function waitForOldContainer(release: { tag: string }, prepare: () => unknown): void {
  if (process.env[HOLDER] === undefined) return
  try {
    prepare()
    waitAtContainerGate(release)
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause)
    const hint = why.startsWith('EACCES')
      ? 'add this process to the group that owns the holder’s folder: `--group-add 65531`'
      : null
    refuse(`waiting for the old container to exit: ${why}`, hint)
  }
}
