// The trust metadata of a feed that may be in two places: beside the releases, and on a branch of a GitHub repository whose releases
// nobody can change once they are published (docs/decisions/0034).
// Must hold: the newer timestamp counts, so that neither place can hold the other back. Whether it is to be believed, TUF decides.

import { parsedJson, isCount, isObject } from '../../words/untrusted.ts'

/** Reads a file of the metadata; null if there is none. */
export type ReadFile = (name: string, maxBytes: number) => Promise<Buffer | null>

export interface Metadata {
  read: ReadFile
  /** why the branch could not be asked, if it was; null: it has answered, or there is none */
  failure(): unknown
}

export const TIMESTAMP_NAME = 'timestamp.json'

/** For one look at the feed. `branch` null: this feed can have none. */
export function metadataIn(releases: ReadFile, branch: ReadFile | null): Metadata {
  if (branch === null) return { read: releases, failure: () => null }
  let failure: unknown = null
  const onBranch: ReadFile = async (name, maxBytes) => {
    try {
      return await branch(name, maxBytes)
    } catch (cause) {
      failure = cause // what is beside the releases may be enough
      return null
    }
  }
  let places = [releases, onBranch]
  return {
    failure: () => failure,
    async read(name, maxBytes) {
      if (name === TIMESTAMP_NAME) {
        const [one = null, other = null] = await Promise.all([releases(name, maxBytes), onBranch(name, maxBytes)])
        if (versionIn(other) <= versionIn(one)) return one
        places = [onBranch, releases] // what it refers to was pushed with it
        return other
      }
      for (const place of places) {
        const found = await place(name, maxBytes)
        if (found !== null) return found
      }
      return null
    },
  }
}

/** 0: none, or not a timestamp */
function versionIn(file: Buffer | null): number {
  const value = file === null ? null : parsedJson(file.toString())
  const signed = isObject(value) ? value['signed'] : null
  const version = isObject(signed) ? signed['version'] : null
  return isCount(version) ? version : 0
}
