// What is said of a copy of the data of a newer release, before an older one starts on it. Pure.

import { compareTags, isTag } from '../../agent/words.ts'

/** `copy`: its name, and the release whose data it holds; `runs`: the one that is to use it. Null: that is not older, or it is not known. */
export function newerCopy({ name, tag }: { name: string; tag: string | null }, runs: string | null): string | null {
  if (!isTag(tag) || !isTag(runs) || compareTags(tag, runs) <= 0) return null
  return `${name} holds the data of ${tag}, which ${runs} may not be able to read`
}
