// A feed of signed releases: it uses only what the keys of the compiled root have signed, directly or through later roots. Layout:
//   v1.1.0/release.json …   verified/timestamp.json, <version>.root.json, <version>.snapshot.json, <version>.targets.json
// The name `verified` sorts after every tag, so a tool that copies in order copies that folder last, and timestamp.json last in it.
// The metadata may be in two places: there, and on a branch of a GitHub repository whose releases nobody can change once they are published
// (docs/decisions/0034).
// Must hold: if the metadata cannot be verified, there is no release, whatever else the feed has. The newer timestamp counts, so that neither
// place can hold the other back; whether it is to be believed, TUF decides.

import { setTimeout as sleep } from 'node:timers/promises'
import { BatonError } from '../../words/errors.ts'
import { parseTag, type Feed, type Tag, type Anchor } from '../../words/release.ts'
import type { KnownStore } from '../trust/known.ts'
import { refreshMetadata } from '../trust/refresh.ts'
import { MANIFEST_NAME, TEXT_MAX_BYTES } from '../trust/release-texts.ts'
import { releasesOf, trustReport, type SignedRelease } from '../trust/signed-releases.ts'
import { assessSigned, usableOf, type Judgement } from '../trust/usable.ts'
import { notesBetween } from './notes.ts'
import { newestUsable, withBarrier } from './newest.ts'
import type { Source } from './source.ts'
import type { StaticOptions } from './static-feed.ts'
import { isCount, isObject, parsedJson } from '../../words/untrusted.ts'

export const METADATA_FOLDER = 'verified'
const TIMESTAMP_NAME = 'timestamp.json'
/** what an answer of the branch could have made good */
const OUTDATED = ['metadata_missing', 'metadata_expired', 'metadata_older']

export interface SignedOptions extends StaticOptions {
  /** where the metadata may be besides: the files of a branch; null: nowhere */
  branch: Pick<Source, 'file'> | null
  anchor: Anchor
  store: KnownStore
  /** how long timestamp.json may be missing while the publisher replaces it; default 30,000 */
  patienceMs?: number
}

const PATIENCE_MS = 30_000
const PATIENCE_EVERY_MS = 1_000

export function makeSignedFeed(options: SignedOptions): Feed {
  const { description, source, branch, target, anchor, store, patienceMs = PATIENCE_MS, channel } = options

  const refresh = async (signal: AbortSignal | undefined): Promise<SignedRelease[]> => {
    const { read: file, failure } = metadataIn(
      (name, maxBytes) => source.file(`${METADATA_FOLDER}/${name}`, maxBytes, signal),
      branch === null ? null : (name, maxBytes) => branch.file(name, maxBytes, signal),
    )
    const read = async (name: string, maxBytes: number): Promise<Buffer | null> => {
      let found = await file(name, maxBytes)
      if (name !== TIMESTAMP_NAME || found !== null || failure() !== null) return found
      // To replace an asset, GitHub removes it first: wait. A feed that was never signed has no root either: do not wait.
      if ((await file('1.root.json', maxBytes)) === null) return null
      for (let waited = 0; found === null && waited < patienceMs; waited += PATIENCE_EVERY_MS) {
        await sleep(Math.min(PATIENCE_EVERY_MS, patienceMs), undefined, signal === undefined ? {} : { signal })
        found = await file(name, maxBytes)
      }
      return found
    }
    const known = await refreshMetadata({ anchor, service: target.service, store, read }).catch((error: unknown) => {
      const isOutdated = error instanceof BatonError && OUTDATED.includes(error.code)
      throw isOutdated ? (failure() ?? error) : error
    })
    return releasesOf(known.files.targets ?? '')
  }

  const judge = async (signed: SignedRelease, signal: AbortSignal | undefined): Promise<Judgement> => {
    if (signed.yanked !== null) return { why: `it was yanked: ${signed.yanked}`, yanked: true }
    const max = Math.min(signed.sizeBytes, TEXT_MAX_BYTES)
    const file = await source.file(`${signed.tag}/${MANIFEST_NAME}`, max, signal).catch((error: unknown) => {
      if (error instanceof BatonError && error.members['maxBytes'] === max) return 'longer' as const
      throw error
    })
    if (file === 'longer') return { why: `its ${MANIFEST_NAME} is larger than its signed size of ${max} bytes` }
    if (file === null) return { why: `it has no ${MANIFEST_NAME}` }
    return assessSigned(signed, file.toString(), target, (name) => source.url(`${signed.tag}/${name}`))
  }

  /** The error for a named tag that is not signed. */
  const unsigned = async (tag: Tag, signal: AbortSignal | undefined): Promise<BatonError> => {
    const isThere = await source.file(`${tag}/${MANIFEST_NAME}`, TEXT_MAX_BYTES, signal).catch(() => null)
    if (isThere === null) return new BatonError('release_not_found', `${description} has no release ${tag}`)
    const hint = 'ask the maintainer to sign it with `baton trust sign`'
    return new BatonError('not_signed', `release ${tag} in ${description} is not signed`, { hint })
  }

  const list = async (signal: AbortSignal | undefined) =>
    (await refresh(signal)).map((signed) => ({ ...signed, draft: false, prerelease: false }))

  return {
    description,
    trust: async () => trustReport(await store.read(), new Date()),
    async latest(skip, signal) {
      const asked = (signed: SignedRelease) => judge(signed, signal)
      const found = await newestUsable(await list(signal), skip, asked, options.onPassedOver, channel)
      return withBarrier(found, skip.from ?? null)
    },
    async byTag(value, signal) {
      const tag = parseTag(value)
      const signed = (await refresh(signal)).find((release) => release.tag === tag)
      if (signed === undefined) throw await unsigned(tag, signal)
      if (signed.yanked !== null) {
        throw new BatonError('yanked', `${tag} was yanked: ${signed.yanked}`, { hint: 'choose another release' })
      }
      return usableOf(tag, await judge(signed, signal))
    },
    async notes(range, signal) {
      return await notesBetween(await list(signal), range, (signed) => judge(signed, signal), channel)
    },
    bytes: (asset, from, validator, signal) => source.bytes(asset.url, from, validator, signal),
  }
}

/** Reads a file of the metadata; null if there is none. */
type ReadFile = (name: string, maxBytes: number) => Promise<Buffer | null>

interface Metadata {
  read: ReadFile
  /** why the branch could not be asked, if it was; null: it has answered, or there is none */
  failure(): unknown
}

/** For one look at the feed. `branch` null: this feed can have none. */
function metadataIn(releases: ReadFile, branch: ReadFile | null): Metadata {
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
