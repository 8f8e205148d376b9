// A release may take hosts only from a certain one on (`from` of its release.json), because its migrations begin there.

import { ownCommand } from './own-command.ts'
import { BatonError } from '../words/errors.ts'
import type { Release, Tag } from '../words/release.ts'
import { isBarred } from '../words/which-release.ts'

/** Throws refused if a host that runs `current` is too old for the release. */
export function refuseBarred(release: Pick<Release, 'tag' | 'from'>, current: Tag): void {
  if (!isBarred(release, current)) return
  const { tag, from } = release
  throw new BatonError('refused', `${tag} takes only hosts from ${from} on, this one runs ${current}`, {
    hint: `\`${ownCommand('upgrade')}\` without a release goes to the newest that it may go to`,
  })
}
