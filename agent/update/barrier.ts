// A release may take hosts only from a certain one on (`from` of its release.json), because its migrations begin there.

import { ownCommand } from './own-command.ts'
import { BatonError } from '../words/errors.ts'
import type { Release, Tag } from '../words/release.ts'
import { isBarred } from '../words/which-release.ts'

/** Throws refused if a host that runs `current` is too old for the release. */
export function refuseBarred(release: Pick<Release, 'tag' | 'from'>, current: Tag): void {
  if (!isBarred(release, current)) return
  const { tag, from } = release
  throw new BatonError(
    'refused',
    `${tag} can be installed only on top of ${from} or later, but this host runs ${current}`,
    {
      hint: `run \`${ownCommand('upgrade')}\` without a release to install the newest one that this host can upgrade to`,
    },
  )
}
