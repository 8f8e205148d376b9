// The one importer of tuf-js, which decides whether signatures, versions and expiries are good (TUF 1.0). Built as a separate script,
// which is compiled when a feed is first asked. So it imports no class of the agent (it would be another class), and a refusal is data.

import { canonicalize } from '@tufjs/canonical-json'
import { BadVersionError, EqualVersionError, ExpiredMetadataError } from 'tuf-js/dist/error.js'
import { TrustedMetadataStore } from 'tuf-js/dist/store.js'

export { canonicalize }

type Role = 'root' | 'timestamp' | 'snapshot' | 'targets'

export interface Walk {
  /** what the host has verified before; all except the root may have expired since */
  known: { root: string } & Partial<Record<Role, string>>
  /** A file of the feed, checked for its form and for bad signatures; null if there is none. */
  fetch(role: Role, name: string, maxBytes: number): Promise<Buffer | null>
  /** Called with each file that is verified, even if a later one is refused. Must not throw. */
  accept(role: Role, bytes: Buffer): void
}

/** Why a file is refused. */
export interface Refusal {
  kind: 'missing' | 'expired' | 'older' | 'unsigned' | 'too_few' | 'mixed' | 'invalid'
  message: string
}

/** in one check; the next check continues from there */
const MAX_ROOT_ROTATIONS = 64

/** The client's workflow (TUF, 5), in memory. Null: all four files are good and current. Throws only what `fetch` throws. */
export async function walkTuf({ known, fetch, accept }: Walk): Promise<Refusal | null> {
  // 5.1, 5.2: the store takes the time once, for every expiry. The first root may have expired
  let store!: TrustedMetadataStore
  const fault = faultOf(() => (store = new TrustedMetadataStore(Buffer.from(known.root))))
  if (fault !== null) return refusalOf(fault, 'root', Buffer.from(known.root))
  const update: Record<Role, (bytes: Buffer, isKnown: boolean) => unknown> = {
    root: (bytes) => store.updateRoot(bytes),
    timestamp: (bytes) => store.updateTimestamp(bytes),
    snapshot: (bytes, isKnown) => store.updateSnapshot(bytes, isKnown),
    targets: (bytes) => store.updateDelegatedTargets(bytes, 'targets', 'root'),
  }
  const isKnown = (role: Role): boolean => faultOf(() => update[role](Buffer.from(known[role] ?? ''), true)) === null
  const take = async (role: Role): Promise<Refusal | null> => {
    const named = namedIn(store, role)
    const name = named === undefined ? `${role}.json` : `${named.version}.${role}.json`
    const bytes = await fetch(role, name, named?.length ?? Infinity)
    if (bytes === null) return { kind: 'missing', message: `the feed has no ${name}` }
    const fault = faultOf(() => update[role](bytes, false))
    if (fault === null) accept(role, bytes)
    // 5.4.3: of two timestamps of one version the known one stays
    return fault === null || fault instanceof EqualVersionError ? null : refusalOf(fault, role, bytes, store)
  }

  // 5.3: each root vouches for the next. Only the last one must not have expired: 5.4 looks at that
  for (let turn = 0; turn < MAX_ROOT_ROTATIONS; turn++) {
    const refusal = await take('root')
    if (refusal?.kind === 'missing') break
    if (refusal !== null) return refusal
  }
  // 5.4: the known timestamp goes first, even if it has expired. The feed's must not be older
  isKnown('timestamp')
  return (
    (await take('timestamp')) ??
    // 5.5, 5.6: a known file stays if it is still named and has not expired
    (isKnown('snapshot') ? null : await take('snapshot')) ??
    (isKnown('targets') ? null : await take('targets'))
  )
}

/** Throws unless a root is signed by as many of its own keys as it asks for. */
export function verifyRoot(bytes: Buffer): void {
  void new TrustedMetadataStore(bytes).root
}

interface Signed {
  type?: Role
  version: number
  expires: string
  length?: number | undefined
  verify?(bytes: Buffer): void
  meta?: Record<string, { version: number }>
  roles?: Record<Role, { keyids: string[]; threshold: number }>
}

/** The class of the error decides. tuf-js does not export two of its classes: for those, checks the sum and the signatures again. */
function refusalOf(error: unknown, role: Role, bytes: Buffer, store?: TrustedMetadataStore): Refusal {
  const text = error instanceof Error ? error.message : String(error)
  const mixed: Refusal = { kind: 'mixed', message: `the feed's metadata files do not match each other: ${text}` }
  const { signed, signatures } = JSON.parse(bytes.toString()) as { signed: Signed; signatures?: { keyid: string }[] }
  if (error instanceof ExpiredMetadataError) {
    const held = [store?.root, store?.timestamp, store?.snapshot].find((file) => file?.signed.isExpired())
    const { type = role, expires } = held?.signed ?? signed
    const now = new Date().toISOString()
    return { kind: 'expired', message: `${type}.json expired on ${expires}; this host's clock says ${now}` }
  }
  if (error instanceof BadVersionError && role !== 'root') {
    // if the version is lower, the store still holds the file before
    const versions = (of?: Signed) => ({ [`${role}.json`]: of, ...of?.meta }) as Record<string, Signed>
    const [before, offered] = [versions(store?.[role]?.signed.toJSON() as Signed | undefined), versions(signed)]
    const name = Object.keys(before).find((name) => Number(offered[name]?.version) < Number(before[name]?.version))
    if (name === undefined) return mixed
    const seen = `this host has seen version ${before[name]?.version}, but the feed offers ${offered[name]?.version}`
    return { kind: 'older', message: `${name}: ${seen}` }
  }
  if (faultOf(() => namedIn(store, role)?.verify?.(bytes)) !== null) return mixed
  const root = store?.root.signed.toJSON() as Signed | undefined
  for (const { roles } of [root ?? signed, signed]) {
    const { keyids = [], threshold = 0 } = roles?.[role] ?? {}
    const good = signatures?.filter(({ keyid }) => keyids.includes(keyid)).length ?? 0
    const message = `${role}.json has too few signatures: ${good} of ${threshold}`
    if (good < threshold) return { kind: good === 0 ? 'unsigned' : 'too_few', message }
  }
  return { kind: 'invalid', message: `${role}.json is not valid: ${text}` }
}

/** Version and length of the role's next file, according to the file that names it; undefined if none does. */
function namedIn(store: TrustedMetadataStore | undefined, role: Role): Partial<Signed> | undefined {
  if (role === 'root') return store && { version: store.root.signed.version + 1 }
  if (role === 'snapshot') return store?.timestamp?.signed.snapshotMeta
  return role === 'targets' ? store?.snapshot?.signed.meta['targets.json'] : undefined
}

/** What the library throws; null: nothing. */
function faultOf(step: () => unknown): unknown {
  try {
    step()
    return null
  } catch (error) {
    return error
  }
}
