// Checks the form of trust metadata, more strictly than TUF. Each file is exactly its canonical JSON, has the members it needs
// and no others that decide anything, uses only Ed25519, delegates nothing, and has no bad signature. Pure.
// Must hold: every accepted file is the only spelling of its content, so that no byte can be changed; anything unknown is refused.

import { createHash, createPublicKey, verify } from 'node:crypto'
import { isTag } from '../../words/release.ts'
import { series } from '../../words/series.ts'
import { isCount, isFileName, isObject, isSha256, parsedJson, quoted } from '../../words/untrusted.ts'

export const ROLES = ['root', 'targets', 'snapshot', 'timestamp'] as const
export type Role = (typeof ROLES)[number]

export interface Key {
  keytype: 'ed25519'
  scheme: 'ed25519'
  keyval: { public: string }
}

export interface SignedRoot {
  _type: 'root'
  version: number
  expires: string
  keys: Record<string, Key>
  roles: Record<Role, { keyids: string[]; threshold: number }>
}

interface Signature {
  keyid: string
  sig: string
}

type Canonicalize = (value: unknown) => string

/** of a role; more keys than any project has people */
const KEYS_MAX = 16
const VERSION_MAX = 2 ** 31
const LENGTH_MAX = 4 * 1024 * 1024

/** What is wrong with the form of a file; null if nothing is. */
export function formFault(role: Role, bytes: Buffer, canonicalize: Canonicalize): string | null {
  const value = parsedJson(bytes.toString())
  if (!isObject(value)) return `${role}.json: expected a JSON object, got ${quoted(bytes.toString('latin1', 0, 60))}`
  try {
    // refuses duplicate keys, other spellings of numbers and texts, white space, and bytes that are not UTF-8
    if (!Buffer.from(canonicalize(value)).equals(bytes)) return `${role}.json: expected canonical JSON`
  } catch {
    return `${role}.json: expected canonical JSON, got a number that is not an integer`
  }
  const why = onlyMembers(value, ['signatures', 'signed']) ?? signaturesFault(value['signatures'])
  const signed = value['signed']
  const fault =
    why ?? (isObject(signed) ? signedFault(role, signed, canonicalize) : 'expected `signed` to be an object')
  return fault === null ? null : `${role}.json: ${fault}`
}

/**
 * What is wrong with the signatures on a file of good form. Null if each one is good, and by a key that one of `roots` (files of
 * good form) names for the role. The library decides whether there are enough of them.
 */
export function signatureFault(
  role: Role,
  bytes: Buffer,
  roots: readonly Buffer[],
  canonicalize: Canonicalize,
): string | null {
  const { signatures, signed } = JSON.parse(bytes.toString()) as { signatures: Signature[]; signed: unknown }
  const message = Buffer.from(canonicalize(signed))
  const known = roots.map((root) => (JSON.parse(root.toString()) as { signed: SignedRoot }).signed)
  for (const { keyid, sig } of signatures) {
    const root = known.find(({ roles }) => roles[role].keyids.includes(keyid))
    if (root === undefined) return `${role}.json: the root does not list key ${keyid.slice(0, 12)}… for this role`
    const key = root.keys[keyid]
    if (key === undefined || !verify(null, message, publicKey(key.keyval.public), Buffer.from(sig, 'hex'))) {
      return `${role}.json: the signature by key ${keyid.slice(0, 12)}… is not valid`
    }
  }
  return null
}

/** Whether a file of good form is signed by any key that a root names for the role. */
export function isSignedByAny(role: Role, bytes: Buffer, root: Buffer): boolean {
  const { signatures } = JSON.parse(bytes.toString()) as { signatures: Signature[] }
  const { signed } = JSON.parse(root.toString()) as { signed: SignedRoot }
  return signatures.some(({ keyid }) => signed.roles[role].keyids.includes(keyid))
}

/** The key from 32 bytes in hex. https://www.rfc-editor.org/rfc/rfc8410: the header of a public key in DER is always the same. */
export function publicKey(hex: string): ReturnType<typeof createPublicKey> {
  const der = Buffer.from(`302a300506032b6570032100${hex}`, 'hex')
  return createPublicKey({ key: der, format: 'der', type: 'spki' })
}

/** The id of a key is the sha256 of its canonical JSON, so one key cannot be counted under two names. */
export function keyIdOf(key: Key, canonicalize: Canonicalize): string {
  return createHash('sha256').update(canonicalize(key)).digest('hex')
}

function signaturesFault(value: unknown): string | null {
  if (!Array.isArray(value) || value.length === 0 || value.length > 2 * KEYS_MAX) {
    return `expected 1 to ${2 * KEYS_MAX} signatures`
  }
  const seen = new Set<unknown>()
  for (const entry of value as unknown[]) {
    if (!isObject(entry)) return 'expected each signature to be an object'
    const { keyid, sig } = entry
    if (onlyMembers(entry, ['keyid', 'sig']) !== null || !isSha256(keyid))
      return 'expected each signature to have only `keyid` (a SHA-256 hash) and `sig`'
    if (typeof sig !== 'string' || !/^[0-9a-f]{128}$/.test(sig))
      return `signature of ${keyid.slice(0, 12)}…: expected 128 hex digits`
    if (seen.has(keyid)) return `key ${keyid.slice(0, 12)}… signed twice`
    seen.add(keyid)
  }
  return null
}

function signedFault(role: Role, signed: Record<string, unknown>, canonicalize: Canonicalize): string | null {
  const { _type: type, spec_version: spec, version, expires } = signed
  if (Object.keys(signed).some((name) => !/^[a-z_][a-z0-9_-]*$/.test(name) || name.startsWith('__'))) {
    return 'expected member names of a-z, 0-9, _ and -'
  }
  if (type !== role) return `expected \`_type\` to be ${role}, got ${quoted(type)}`
  if (typeof spec !== 'string' || !/^1\.0\.\d{1,3}$/.test(spec))
    return `expected \`spec_version\` 1.0, got ${quoted(spec)}`
  if (!isVersion(version)) return `expected \`version\` from 1 to ${VERSION_MAX}, got ${quoted(version)}`
  if (
    typeof expires !== 'string' ||
    !/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/.test(expires) ||
    Number.isNaN(Date.parse(expires))
  )
    return `expected \`expires\` in the form 2027-01-31T12:00:00Z, got ${quoted(expires)}`
  if (signed['delegations'] !== undefined) return 'expected no delegations'
  switch (role) {
    case 'root':
      return rootFault(signed, canonicalize)
    case 'timestamp':
      return metaFault(signed['meta'], 'snapshot.json')
    case 'snapshot':
      return metaFault(signed['meta'], 'targets.json')
    case 'targets':
      return targetsFault(signed['targets'])
    default:
      return role satisfies never
  }
}

function rootFault(signed: Record<string, unknown>, canonicalize: Canonicalize): string | null {
  const { keys, roles, consistent_snapshot: consistent } = signed
  if (consistent !== true) return 'expected `consistent_snapshot` to be true'
  if (!isObject(keys) || Object.keys(keys).length > 4 * KEYS_MAX)
    return `expected \`keys\` to be an object with at most ${4 * KEYS_MAX} members`
  for (const [id, key] of Object.entries(keys)) {
    if (!isObject(key) || onlyMembers(key, ['keytype', 'keyval', 'scheme']) !== null)
      return `key ${quoted(id)}: not a valid key`
    const { keytype, scheme, keyval } = key
    if (keytype !== 'ed25519' || scheme !== 'ed25519') {
      return `key ${quoted(id)}: expected type and scheme ed25519, got ${quoted(keytype)} and ${quoted(scheme)}`
    }
    if (!isObject(keyval) || onlyMembers(keyval, ['public']) !== null || !isSha256(keyval['public'])) {
      return `key ${quoted(id)}: expected 32 bytes in hex`
    }
    if (keyIdOf(key as unknown as Key, canonicalize) !== id)
      return `key ${quoted(id)}: its ID does not match its checksum`
  }
  if (!isObject(roles) || onlyMembers(roles, [...ROLES]) !== null)
    return `expected exactly these roles: ${ROLES.join(', ')}`
  for (const name of ROLES) {
    const entry = roles[name]
    if (!isObject(entry) || onlyMembers(entry, ['keyids', 'threshold']) !== null)
      return `role ${name}: expected only \`keyids\` and \`threshold\``
    const { keyids, threshold } = entry
    if (!Array.isArray(keyids) || keyids.length > KEYS_MAX)
      return `role ${name}: expected a list of at most ${KEYS_MAX} keys`
    const ids = keyids as unknown[]
    if (new Set(ids).size !== ids.length) return `role ${name}: a key is listed twice`
    if (!ids.every((id) => typeof id === 'string' && Object.hasOwn(keys, id)))
      return `role ${name}: a key is not in \`keys\``
    if (!isCount(threshold) || threshold < 1 || threshold > ids.length) {
      return `role ${name}: expected a threshold from 1 to ${ids.length}, got ${quoted(threshold)}`
    }
  }
  return null
}

function metaFault(meta: unknown, name: string): string | null {
  if (!isObject(meta) || onlyMembers(meta, [name]) !== null) return `expected \`meta\` to contain only ${name}`
  const file = meta[name]
  if (!isObject(file) || onlyMembers(file, ['hashes', 'length', 'version']) !== null) return `invalid entry for ${name}`
  if (!isVersion(file['version'])) return `${name}: expected a version from 1 to ${VERSION_MAX}`
  return measureFault(name, file)
}

function targetsFault(targets: unknown): string | null {
  if (!isObject(targets)) return 'expected `targets` to be an object'
  for (const [path, file] of Object.entries(targets)) {
    const [tag, name, ...more] = path.split('/')
    if (more.length > 0 || !isTag(tag) || !isFileName(name))
      return `expected a path of the form vX.Y.Z/name, got ${quoted(path)}`
    if (!isObject(file)) return `invalid entry for ${quoted(path)}`
    const unknown = onlyMembers(
      file,
      ['custom', 'hashes', 'length'].filter((member) => member in file),
    )
    const fault = unknown === null ? measureFault(path, file) : `${quoted(path)}: ${unknown}`
    if (fault !== null) return fault
    if (file['custom'] !== undefined && !isObject(file['custom']))
      return `${quoted(path)}: expected \`custom\` to be an object`
  }
  return null
}

function measureFault(name: string, { length, hashes }: Record<string, unknown>): string | null {
  if (!isCount(length) || length < 1 || length > LENGTH_MAX)
    return `${quoted(name)}: expected a length in bytes, got ${quoted(length)}`
  if (!isObject(hashes) || onlyMembers(hashes, ['sha256']) !== null || !isSha256(hashes['sha256'])) {
    return `${quoted(name)}: expected only a sha256 in \`hashes\``
  }
  return null
}

function isVersion(value: unknown): value is number {
  return isCount(value) && value >= 1 && value <= VERSION_MAX
}

/** Null if the object has exactly these members. */
function onlyMembers(value: Record<string, unknown>, names: readonly string[]): string | null {
  const got = Object.keys(value).toSorted()
  const wanted = names.toSorted()
  const same = got.length === wanted.length && got.every((name, at) => name === wanted[at])
  return same
    ? null
    : `expected the members ${series(
        wanted.map((name) => `\`${name}\``),
        'and',
      )}, got ${quoted(got)}`
}
