// Which releases a host may take: prereleases, and what a barrier keeps from it. Pure; nothing that only serves loads it.

import { compareTags, isTag, type Release, type Tag } from './release.ts'

/** Whether the tag is that of a prerelease, such as `v1.2.0-beta.1`. */
export function isPrerelease(tag: Tag): boolean {
  return tag.includes('-')
}

const BARRIER = /^>=(?=[0-9])(.*)$/

/** The tag in `>=1.4.0`, the form of a barrier; null: it has another form. */
export function barrierIn(text: unknown): Tag | null {
  const tag = `v${BARRIER.exec(typeof text === 'string' ? text : '')?.[1] ?? ''}`
  return isTag(tag) ? tag : null
}

/** Whether a host that runs `current` is too old for this release. `current` null: not known. */
export function isBarred({ from }: Pick<Release, 'from'>, current: Tag | null): boolean {
  return from !== undefined && current !== null && compareTags(current, from) < 0
}
