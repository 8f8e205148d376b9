// The commands of `trust`, one function for each. A command reports what it has done. It writes nothing before it has opened every
// key that it needs.

import { readdir } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { METADATA_FOLDER, type Role, ROLES, SERVICE_MEMBER, SIGNED_AT } from '../../agent/publish.ts'
import { DAY_MS, BatonError, parseTag } from '../../agent/words.ts'
import {
  beginChange,
  type TrustChange,
  DAYS,
  daysOf,
  newTargets,
  signRoot,
  signTargets,
  type Signers,
} from './change.ts'
import { randomBytes } from 'node:crypto'
import { type KeyFile, makeKey, nextName, readKeys, type Signer, unlock, type WrittenKeys, writeKeys } from './keys.ts'
import type { Passphrases } from './passphrase.ts'
import { type Days, readRepository, type Repository } from './repository.ts'

export interface TrustContext {
  /** absolute path of the feed's folder */
  feed: string
  keyFolders: string[]
  /** texts of key files, one after the other, as in a secret of CI; '' for none */
  keyText: string
  passphrases: Passphrases
  environment: NodeJS.ProcessEnv
  cwd: string
  /** scrypt's cost N for new keys */
  work: number
  offlineDays: number | null
  now: Date
  /** prints one line for the publisher */
  say(line: string): void
}

export interface Init {
  service: string
  rootKeys: number
  rootThreshold: number
  days: Partial<Days>
}

/** what a command says of a change: it has signed files in the publisher's own folder, which no host reads */
const UNSEEN = 'hosts see this once the feed is published'

/** Default folder for keys: outside every repository. */
export function defaultKeys(service: string, environment: NodeJS.ProcessEnv): string {
  const home = environment['XDG_CONFIG_HOME'] || join(homedir(), '.config')
  return join(home, 'baton', 'keys', service)
}

export async function init(context: TrustContext, { service, rootKeys, rootThreshold, days }: Init): Promise<void> {
  const folder = join(context.feed, METADATA_FOLDER)
  const there = await readdir(folder).catch(() => [])
  if (there.length > 0) {
    throw new BatonError('refused', `${folder} already has signatures`, {
      hint: 'to make a new root, run `trust rotate`',
    })
  }
  const [keys = defaultKeys(service, context.environment)] = context.keyFolders
  const passphrase = await context.passphrases.choose()
  const salt = randomBytes(16)
  const files: KeyFile[] = []
  const make = (role: Role, count: number): Signer[] =>
    Array.from({ length: count }, (_, at) => {
      const { file, signer } = makeKey(`${role}-${at + 1}`, passphrase, salt, context.work)
      files.push(file)
      return signer
    })
  const roles = {
    root: { keys: make('root', rootKeys), threshold: rootThreshold },
    targets: { keys: make('targets', 1), threshold: 1 },
    snapshot: { keys: make('snapshot', 1), threshold: 1 },
    timestamp: { keys: make('timestamp', 1), threshold: 1 },
  }
  const plan = { service, days: { ...DAYS, ...days }, roles }
  await beginChange(folder, plan, context.now, () => kept(context, keys, files))
  context.say(
    `signed ${join(folder, '1.root.json')}: build with it (\`root\` in baton.config.json, or --root), then run \`trust sign\``,
  )
}

export async function sign(
  context: TrustContext,
  { image, again }: { image: { repository: string; digest: string } | null; again: boolean },
): Promise<string[]> {
  const change = await changeOf(context)
  const { tags, drafts, targets } = await newTargets(context.feed, change.repository, image, again)
  await signTargets(change, tags.length === 0 ? null : targets)
  if (drafts.length > 0) context.say(`not signed, since releases.json marks them as drafts: ${drafts.join(', ')}`)
  context.say(tags.length === 0 ? 'no new release: signed the snapshot and the timestamp' : `signed ${tags.join(', ')}`)
  return tags
}

/** Gives the timestamp and the snapshot a later expiry; the targets too, if they are due and their key is at hand. */
export async function refresh(context: TrustContext): Promise<void> {
  const change = await changeOf(context)
  const { targets, root } = change.repository
  const left = Date.parse(targets.expires) - context.now.getTime()
  const isDue = left < (daysOf(root).targets * DAY_MS) / 3 || context.offlineDays !== null
  const files = await keyFilesOf(context, root)
  const isAtHand = files.some(({ keyid }) => root.roles.targets.keyids.includes(keyid))
  await signTargets(change, isDue && isAtHand ? targets.targets : null)
  context.say(`signed ${isDue && isAtHand ? 'targets, ' : ''}snapshot and timestamp`)
  if (isDue && !isAtHand)
    context.say(`warning: targets expire on ${targets.expires} and their key is not in the key folders`)
}

export async function yank(context: TrustContext, tag: string, why: string | null): Promise<void> {
  const change = await changeOf(context)
  const path = `${parseTag(tag)}/release.json`
  const targets = structuredClone(change.repository.targets.targets)
  const target = targets[path]
  if (target === undefined)
    throw new BatonError('release_not_found', `${tag} is not signed, so there is nothing to yank`)
  if (why === null) delete target.custom.yanked
  else target.custom.yanked = why
  await signTargets(change, targets)
  context.say(`${why === null ? `${tag} may be installed again` : `yanked ${tag}: ${why}`}; ${UNSEEN}`)
}

export interface Rollout {
  /** rising, of all hosts, whole numbers; empty: all hosts at once */
  percents: number[]
  /** between two steps */
  everyMs: number
}

/** Lets hosts go to a release by themselves in steps, the first of them now. Signed once: nobody has to sign the next step. */
export async function rollout(context: TrustContext, tag: string, { percents, everyMs }: Rollout): Promise<void> {
  const change = await changeOf(context)
  const targets = structuredClone(change.repository.targets.targets)
  const target = targets[`${parseTag(tag)}/release.json`]
  if (target === undefined) throw new BatonError('release_not_found', `${tag} is not signed: sign it first`)
  const at = (step: number) => new Date(context.now.getTime() + step * everyMs).toISOString().replace(/\.\d+Z$/, 'Z')
  const steps = percents.map((percent, step) => ({ at: at(step), percent }))
  if (steps.length === 0) delete target.custom.rollout
  else target.custom.rollout = steps
  await signTargets(change, targets)
  const told = steps.map((step) => `${step.percent}% of hosts from ${step.at}`).join(', ')
  context.say(`${tag} goes to ${steps.length === 0 ? 'all hosts at once' : told}; ${UNSEEN}`)
  if (steps.length > 0 && percents.at(-1) !== 100) context.say('for the other hosts, run `trust rollout` again')
}

/**
 * Gives a role new keys in place of the `lost` ones, or of all. Hosts that have seen the new root accept nothing that the old keys
 * signed, so a stolen key is useless.
 */
export async function rotate(
  context: TrustContext,
  role: Role,
  { lost, threshold }: { lost: string[]; threshold: number | null },
): Promise<void> {
  const change = await changeOf(context)
  const { root } = change.repository
  const files = await keyFilesOf(context, root)
  const before = root.roles[role].keyids
  const gone = lost.length === 0 ? before : before.filter((id) => lost.some((one) => isNamed(one, id, files)))
  if (gone.length === 0)
    throw new BatonError('refused', `no ${role} key matches ${lost.map((one) => JSON.stringify(one)).join(', ')}`)
  const [keys = defaultKeys(String(root[SERVICE_MEMBER]), context.environment)] = context.keyFolders
  // open the root keys first: a wrong passphrase must not leave new keys behind
  await change.signers('root', root)
  const passphrase = await context.passphrases.choose()
  const salt = randomBytes(16)
  const made: KeyFile[] = []
  const fresh = gone.map(() => {
    const { file, signer } = makeKey(nextName(role, [...files, ...made]), passphrase, salt, context.work)
    made.push(file)
    return signer
  })
  const signers: Signers = async (wanted, of) => {
    const own = fresh.filter(({ keyid }) => of.roles[wanted].keyids.includes(keyid))
    const { threshold: enough } = of.roles[wanted]
    return own.length >= enough ? own : [...own, ...(await opened(context, wanted, of, enough - own.length))]
  }
  const edit = (next: Repository['root']): void => {
    const stay = before.filter((id) => !gone.includes(id))
    next.roles[role] = {
      keyids: [...stay, ...fresh.map(({ keyid }) => keyid)],
      threshold: threshold ?? root.roles[role].threshold,
    }
    for (const { keyid, key } of fresh) next.keys[keyid] = key
  }
  await signRoot({ ...change, signers }, edit, () => kept(context, keys, made))
  const what = `${gone.length} new ${role} key${gone.length === 1 ? '' : 's'}`
  context.say(`signed root ${root.version + 1}: ${what}; ${UNSEEN}`)
  const old = files.filter(({ keyid }) => gone.includes(keyid)).map(({ name }) => name)
  if (old.length > 0) context.say(`keys that no longer sign anything, whose files you can delete: ${old.join(', ')}`)
}

async function kept({ say }: TrustContext, folder: string, files: readonly KeyFile[]): Promise<WrittenKeys> {
  const written = await writeKeys(folder, files)
  for (const path of written.paths) say(`made ${path}`)
  return written
}

export type Shown = Awaited<ReturnType<typeof show>>

export async function show(context: TrustContext) {
  const repository = await readRepository(context.feed)
  const { root, targets } = repository
  const files = await keyFilesOf(context, root).catch(() => [])
  const named = (id: string): string => {
    const file = files.find(({ keyid }) => keyid === id)
    return file === undefined ? id.slice(0, 12) : `${id.slice(0, 12)} (${file.name})`
  }
  return {
    service: String(root[SERVICE_MEMBER]),
    roles: ROLES.map((role) => {
      const { version, expires, [SIGNED_AT]: signedAt } = repository[role] as Repository['root']
      const { keyids, threshold } = root.roles[role]
      return { role, version, expiresAt: expires, signedAt: String(signedAt), threshold, keys: keyids.map(named) }
    }),
    releases: Object.entries(targets.targets).map(([path, { custom }]) => {
      const { yanked = null, image, rollout = null } = custom
      const named = image === undefined ? null : `${image.repository}@${image.digest}`
      return { tag: path.split('/')[0] ?? path, yanked, image: named, rollout }
    }),
  }
}

async function changeOf(context: TrustContext): Promise<TrustChange> {
  const repository = await readRepository(context.feed)
  const { offlineDays, now } = context
  const known = new Map<string, Promise<Signer[]>>()
  const signers: Signers = (role, root) => {
    const key = JSON.stringify(root.roles[role])
    const asked = known.get(key) ?? opened(context, role, root, root.roles[role].threshold)
    known.set(key, asked)
    return asked
  }
  return { repository, signers, offlineDays, now }
}

async function keyFilesOf(context: TrustContext, root: Repository['root']): Promise<KeyFile[]> {
  const folders =
    context.keyFolders.length > 0
      ? context.keyFolders
      : [defaultKeys(String(root[SERVICE_MEMBER]), context.environment)]
  return await readKeys(folders, context.keyText)
}

/** Opens `enough` keys of a role. */
async function opened(context: TrustContext, role: Role, root: Repository['root'], enough: number): Promise<Signer[]> {
  const { keyids } = root.roles[role]
  const files = (await keyFilesOf(context, root)).filter(({ keyid }) => keyids.includes(keyid))
  if (files.length < enough) {
    const hint = 'name the key folders with --keys, separated by colons'
    throw new BatonError(
      'threshold_not_met',
      `${enough} more ${enough === 1 ? 'key' : 'keys'} for the role \`${role}\` ${enough === 1 ? 'is' : 'are'} needed, but the key folders contain ${files.length === 0 ? 'none' : files.length}`,
      { hint },
    )
  }
  const signers: Signer[] = []
  for (const file of files.slice(0, enough)) signers.push(await openedOne(context, file))
  return signers
}

async function openedOne({ passphrases }: TrustContext, file: KeyFile): Promise<Signer> {
  const passphrase = await passphrases.ask(file.name, false)
  try {
    return unlock(file, passphrase)
  } catch {
    return unlock(file, await passphrases.ask(file.name, true))
  }
}

/** Whether `said` names this key: by its id, by the first 8 or more characters of it, or by its name. */
function isNamed(said: string, id: string, files: readonly KeyFile[]): boolean {
  return (said.length >= 8 && id.startsWith(said)) || files.some(({ name, keyid }) => name === said && keyid === id)
}
