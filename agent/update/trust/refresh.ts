// From the trust metadata that a host knows to those that a feed has now, or exactly why not. What signatures, versions and
// expiries mean is the library's (`tuf.ts`); the form (`form.ts`), the bounds and the words of the errors are ours.
// Must hold: nothing but verified files comes out; a refusal changes nothing but the chain of roots, each of which is verified too.

import type * as Tuf from './tuf.ts'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { BatonError, reasonOf } from '../../words/errors.ts'
import { SERVICE_MEMBER, assertClock } from './anchor.ts'
import type { Anchor } from '../../words/release.ts'
import { ROLES, formFault, isSignedByAny, signatureFault, type Role } from './form.ts'
import { type Known, type KnownStore, sumOf, metadataVersionOf } from './known.ts'
import { quoted } from '../../words/untrusted.ts'

/** A file of the feed's metadata folder; null where there is none. */
export type ReadMetadata = (name: string, maxBytes: number) => Promise<Buffer | null>

export interface RefreshOptions {
  anchor: Anchor
  service: string
  store: KnownStore
  read: ReadMetadata
}

const BOUNDS = {
  rootMaxLength: 64 * 1024,
  timestampMaxLength: 16 * 1024,
  snapshotMaxLength: 16 * 1024,
  targetsMaxLength: 2 * 1024 * 1024,
  /** in one check; the next one goes on from there */
  maxRootRotations: 64,
}

/** The library that checks signatures: loaded when a signed feed is first asked. */
export async function loadTrust(): Promise<typeof Tuf> {
  return await import('./tuf.ts')
}

/** What is known now. Throws BatonError with a code of trust, check_failed where the feed cannot be reached. */
export async function refreshMetadata({ anchor, service, store, read }: RefreshOptions): Promise<Known> {
  assertClock(anchor, new Date())
  const { canonicalize, refreshTuf } = await loadTrust()
  const known = await store.read()
  const roots: Buffer[] = [Buffer.from(known.files.root)]
  const offered: Partial<Record<Role, string>> = {}
  let fault: BatonError | null = null

  const fetch = async (name: string, maxBytes: number): Promise<Buffer | null> => {
    const [, version, role] = /^(?:([0-9]+)\.)?(root|timestamp|snapshot|targets)\.json$/.exec(name) ?? []
    if (role === undefined) throw new BatonError('metadata_invalid', `expected a file of TUF, got ${quoted(name)}`)
    const bytes = await read(name, Math.min(maxBytes, BOUNDS[`${role as Role}MaxLength`]))
    if (bytes === null) {
      if (role === 'root') return null
      throw missing(name)
    }
    const why = formFault(role as Role, bytes, canonicalize)
    if (why !== null) throw new BatonError('metadata_invalid', why)
    const [newest = bytes] = roots.slice(-1)
    if (role === 'root') checkService(bytes, service)
    else if (!isSignedByAny(role as Role, bytes, newest)) throw await stranger(role as Role, newest, read)
    const vouching = role === 'root' ? [newest, bytes] : [newest]
    const bad = signatureFault(role as Role, bytes, vouching, canonicalize)
    if (bad !== null) throw new BatonError('signature_missing', bad)
    if (role === 'root' && version !== undefined) roots.push(bytes)
    offered[role as Role] = bytes.toString()
    return bytes
  }

  const directory = await mkdtemp(join(tmpdir(), 'baton-trust-'))
  try {
    for (const role of ROLES) {
      const file = known.files[role]
      if (file !== undefined) await writeFile(join(directory, `${role}.json`), file, { mode: 0o600 })
    }
    const attempt = async (name: string, maxBytes: number): Promise<Buffer | null> => {
      try {
        return await fetch(name, maxBytes)
      } catch (error) {
        fault = error instanceof BatonError ? error : new BatonError('check_failed', reasonOf(error), { cause: error })
        throw error
      }
    }
    let problem: BatonError | null = null
    try {
      await refreshTuf(directory, attempt, BOUNDS)
    } catch (error) {
      problem = fault ?? explained(error, { ...known.files, ...offered })
    }
    const files = await filesIn(directory)
    const chain = chainOf(known, files, roots)
    const next: Known = { chain, files: problem === null ? files : { ...known.files, root: files.root } }
    if (JSON.stringify(next) !== JSON.stringify(known)) await store.write(next)
    if (problem !== null) throw problem
    return next
  } finally {
    await rm(directory, { recursive: true, force: true })
  }
}

async function filesIn(directory: string): Promise<Known['files']> {
  const files: Partial<Record<Role, string>> = {}
  for (const role of ROLES) {
    const text = await readFile(join(directory, `${role}.json`), 'utf8').catch(() => null)
    if (text !== null) files[role] = text
  }
  return { root: '', ...files }
}

/** Of the roots that were fetched, those up to the one that was accepted. */
function chainOf(known: Known, { root }: Known['files'], roots: readonly Buffer[]): string[] {
  const accepted = roots.slice(1, roots.findIndex((bytes) => bytes.toString() === root) + 1)
  return [...known.chain, ...accepted.map(sumOf)]
}

/** The keys of another service of the same maintainer vouch for nothing here. */
function checkService(root: Buffer, service: string): void {
  const { signed } = JSON.parse(root.toString()) as { signed: Record<string, unknown> }
  const named = signed[SERVICE_MEMBER]
  if (named === service) return
  throw new BatonError('metadata_invalid', `root.json is of \`${quoted(named)}\`, expected \`${service}\``)
}

function missing(name: string): BatonError {
  const hint = 'was it published without being signed? this executable updates from signed feeds only'
  return new BatonError('metadata_missing', `the feed has no ${name}`, { hint })
}

/** A file that is signed by nobody whom the newest root names: taken over, or there is a newer root that cannot be reached. */
async function stranger(role: Role, root: Buffer, read: ReadMetadata): Promise<BatonError> {
  const version = metadataVersionOf(root.toString())
  const later = await read(`${version + 2}.root.json`, BOUNDS.rootMaxLength).catch(() => null)
  if (later !== null) {
    const message = `the feed has ${version + 2}.root.json and no ${version + 1}.root.json: the chain from root ${version} is broken`
    return new BatonError('root_unreachable', message, { hint: 'install a newer release by hand, from its install.sh' })
  }
  const message = `${role}.json is signed by none of the keys that root ${version} names for it`
  return new BatonError('signature_missing', message, {
    hint: 'do not update: somebody else may be writing to this feed',
  })
}

/** The library's words as errors that a person can act on. Its classes are lost on the way, so it is told by its texts. */
function explained(error: unknown, files: Known['files']): BatonError {
  const text = reasonOf(error)
  const fail = (code: BatonError['code'], message: string, hint?: string): BatonError =>
    new BatonError(code, message, { cause: error, ...(hint === undefined ? {} : { hint }) })
  const [, expired] = /(\w+)(?:\.json)? is expired/.exec(text) ?? []
  if (expired !== undefined) {
    const file = files[expired as Role]
    const on = file === undefined ? '' : ` on ${(JSON.parse(file) as { signed: { expires: string } }).signed.expires}`
    const hint = 'the maintainer has to sign it anew (`baton trust refresh`); or is the clock of this host wrong?'
    return fail('metadata_expired', `${expired}.json has expired${on}; it is ${new Date().toISOString()} here`, hint)
  }
  const [, role, offered, seen] = /New (\w+) version (\d+) is less than current version (\d+)/.exec(text) ?? []
  const [, other, name, current] =
    /New version (\d+) of (\w+)\.json is less than current version (\d+)/.exec(text) ?? []
  if (role !== undefined || name !== undefined) {
    const message = `${role ?? name}.json: this host has seen version ${seen ?? current}, the feed offers ${offered ?? other}`
    return fail('metadata_older', message, 'a mirror that is out of date? ask the feed itself')
  }
  const [, what, good, needed] = /(\w+) was signed by (\d+)\/(\d+) keys/.exec(text) ?? []
  if (what !== undefined) {
    const code = good === '0' ? 'signature_missing' : 'threshold_not_met'
    return fail(code, `${what}.json is signed by ${good} of the ${needed} keys that it needs`)
  }
  if (/doesn't match|does not match|Missing file|Expected hash|Expected length/.test(text)) {
    return fail(
      'metadata_mixed',
      `files of the feed's metadata do not belong together: ${text}`,
      'try again in a minute',
    )
  }
  return fail('metadata_invalid', `the feed's metadata: ${text}`)
}
