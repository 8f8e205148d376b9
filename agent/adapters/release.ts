// This process's release. Also right in worker threads, in forked children and after a handover.

import { type OwnRelease, ownRelease } from '../own.ts'

export type { OwnRelease }
export const release: Readonly<OwnRelease> = ownRelease()
