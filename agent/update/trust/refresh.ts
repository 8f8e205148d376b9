// Brings a host's trust metadata up to the feed's, or says exactly why not. The library (`tuf.ts`) decides about signatures, versions
// and expiries; this file checks the form (`form.ts`) and the bounds, and words the errors.
// Must hold: returns only verified files; a refusal changes nothing except the chain of roots, each of which is verified too.

import type * as Tuf from './tuf.ts'
import { BatonError, reasonOf } from '../../words/errors.ts'
import { SERVICE_MEMBER, assertClock } from './anchor.ts'
import type { Anchor } from '../../words/release.ts'
import { formFault, isSignedByAny, signatureFault, type Role } from './form.ts'
import { type Known, type KnownStore, metadataVersionOf } from './known.ts'
import { quoted } from '../../words/untrusted.ts'
import { sha256Of } from './release-texts.ts'

/** A file of the feed's metadata folder; null if there is none. */
export type ReadMetadata = (name: string, maxBytes: number) => Promise<Buffer | null>

export interface RefreshOptions {
  anchor: Anchor
  service: string
  store: KnownStore
  read: ReadMetadata
}

const MAX_BYTES = { root: 64 * 1024, timestamp: 16 * 1024, snapshot: 16 * 1024, targets: 2 * 1024 * 1024 }

const REFUSALS: Record<Tuf.Refusal['kind'], [code: BatonError['code'], hint?: string]> = {
  missing: ['metadata_missing', 'this executable updates only from signed feeds: ask the maintainer to sign this feed'],
  expired: [
    'metadata_expired',
    "check this host's clock; if it is right, ask the maintainer to sign the feed again (`baton trust refresh`)",
  ],
  older: ['metadata_older', 'if this feed is a mirror, it may be out of date: use the original feed'],
  unsigned: ['signature_missing'],
  too_few: ['threshold_not_met'],
  mixed: ['metadata_mixed', 'try again in a minute'],
  invalid: ['metadata_invalid'],
}

/** The library that checks signatures: loaded when a signed feed is first asked. */
export async function loadTrust(): Promise<typeof Tuf> {
  return await import('./tuf.ts')
}

/** The verified metadata. Throws BatonError with a code of trust, or check_failed if the feed cannot be reached. */
export async function refreshMetadata({ anchor, service, store, read }: RefreshOptions): Promise<Known> {
  assertClock(anchor, new Date())
  const { canonicalize, walkTuf } = await loadTrust()
  const known = await store.read()
  const next: Known = { chain: [...known.chain], files: { ...known.files } }

  const fetch = async (role: Role, name: string, maxBytes: number): Promise<Buffer | null> => {
    const bytes = await read(name, Math.min(maxBytes, MAX_BYTES[role]))
    if (bytes === null) return null
    const why = formFault(role, bytes, canonicalize)
    if (why !== null) throw new BatonError('metadata_invalid', why)
    const newest = Buffer.from(next.files.root)
    if (role === 'root') checkService(bytes, service)
    else if (!isSignedByAny(role, bytes, newest)) throw await stranger(role, newest, read)
    const bad = signatureFault(role, bytes, role === 'root' ? [newest, bytes] : [newest], canonicalize)
    if (bad !== null) throw new BatonError('signature_missing', bad)
    return bytes
  }
  const accept = (role: Role, bytes: Buffer): void => {
    next.files[role] = bytes.toString()
    if (role === 'root') next.chain.push(sha256Of(bytes))
  }

  const problem = await walkTuf({ known: known.files, fetch, accept }).then(
    (refusal) => (refusal === null ? null : explained(refusal)),
    (error: unknown) =>
      error instanceof BatonError ? error : new BatonError('check_failed', reasonOf(error), { cause: error }),
  )
  if (problem !== null) next.files = { ...known.files, root: next.files.root }
  if (JSON.stringify(next) !== JSON.stringify(known)) await store.write(next)
  if (problem !== null) throw problem
  return next
}

/** The keys of another service of the same maintainer vouch for nothing here. */
function checkService(root: Buffer, service: string): void {
  const { signed } = JSON.parse(root.toString()) as { signed: Record<string, unknown> }
  const named = signed[SERVICE_MEMBER]
  if (named === service) return
  throw new BatonError('metadata_invalid', `root.json is for ${quoted(named)}, not for \`${service}\``)
}

/** The error for a file that no key of the newest root has signed: a foreign file, or a newer root that the chain does not reach. */
async function stranger(role: Role, root: Buffer, read: ReadMetadata): Promise<BatonError> {
  const version = metadataVersionOf(root.toString())
  const later = await read(`${version + 2}.root.json`, MAX_BYTES.root).catch(() => null)
  if (later !== null) {
    const message = `the feed has ${version + 2}.root.json but no ${version + 1}.root.json: the chain from root ${version} is broken`
    return new BatonError('root_unreachable', message, {
      hint: 'install a newer release by hand with its `install.sh`',
    })
  }
  const message = `${role}.json is not signed by any of the keys that root.json (version ${version}) lists for it`
  return new BatonError('signature_missing', message, {
    hint: 'do not update: someone else may be writing to this feed',
  })
}

/** A refusal as an error that a person can act on. */
function explained({ kind, message }: Tuf.Refusal): BatonError {
  const [code, hint] = REFUSALS[kind]
  return new BatonError(code, message, hint === undefined ? {} : { hint })
}
