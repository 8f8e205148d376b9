// Keeps a feed's metadata on GitHub, through the REST API at any base URL: as assets of one prerelease that is never the latest, or on a
// branch, if the repository's releases are immutable (docs/decisions/0034).
// Must hold: the files that timestamp.json refers to are there before it is replaced. The token goes only to the API and its
// upload host, and into no message.

import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { METADATA_FOLDER, parseFeedSetting } from '../../agent/publish.ts'
import { BatonError } from '../../agent/words.ts'
import { type GitHub, openGitHub } from '../lib/github.ts'
import { outdatedAmong } from './repository.ts'

interface Asset {
  id: number
  name: string
  url: string
}

interface Holder {
  id: number
  upload_url: string
  assets: Asset[]
  /** GitHub never changes its assets again: a setting of the repository, or of its owner */
  immutable?: boolean
}

const TIMESTAMP = 'timestamp.json'
/** takes the name of the old timestamp once that is gone: an upload that fails in between would leave hosts without any */
const NEXT = 'timestamp.json.next'
const TIMEOUT_MS = 60_000
const FILE_MAX_BYTES = 4 * 1024 * 1024
const NAME = /^(timestamp|[1-9]\d{0,9}\.(root|snapshot|targets))\.json$/

const HOLDER = {
  tag_name: METADATA_FOLDER,
  name: 'trust metadata',
  body: 'Metadata that hosts use to verify releases. Not a release.',
  prerelease: true,
  make_latest: 'false',
}

/** `setting`: a host's feed setting, `github:owner/name[@api]`. */
export function openHub(setting: string, environment: NodeJS.ProcessEnv) {
  const parsed = parseFeedSetting(setting)
  if (parsed.kind !== 'github') {
    throw new BatonError('invalid_request', `expected \`github:owner/name\`, got ${setting}`, {
      hint: 'to publish a folder, copy it with `verified/timestamp.json` last: `rsync -a` does that',
    })
  }
  const { api, repository } = parsed
  const releases = `${api}/repos/${repository}/releases`
  const { ask, token } = openGitHub(api, environment)
  const branch = openBranch(`${api}/repos/${repository}`, METADATA_FOLDER, ask)
  const holder = async (): Promise<Holder | null> => {
    const answer = await ask('GET', `${releases}/tags/${METADATA_FOLDER}`)
    return answer.status === 404 ? null : ((await answer.json()) as Holder)
  }

  /** The release for the metadata; null: they go to the branch, as no release here could be changed. */
  const changeable = async (): Promise<Holder | null> => {
    if ((await branch.head()) !== null) return null
    const there = await holder()
    if (there !== null) return there.immutable === true ? null : there
    const newest = await ask('GET', `${releases}?per_page=1`)
    if (newest.ok && ((await newest.json()) as Holder[])[0]?.immutable === true) return null
    const made = await createHolder(releases, repository, ask)
    return made.immutable === true ? null : made
  }

  return {
    /** Fetches the metadata into `<feed>/verified/`. Resolves to the names of the fetched files. */
    async pull(feed: string): Promise<string[]> {
      const folder = join(feed, METADATA_FOLDER)
      await mkdir(folder, { recursive: true })
      const there = new Set(await readdir(folder))
      const isWanted = (name: string) => NAME.test(name) && (!there.has(name) || name === TIMESTAMP)
      const pulled: string[] = []
      const onBranch = await branch.files()
      const all = onBranch ?? (await holder())?.assets ?? []
      const accept = onBranch === null ? 'application/octet-stream' : 'application/vnd.github.raw+json'
      for (const { name, url } of all) {
        if (!isWanted(name)) continue
        await writeFile(join(folder, name), await download(url, name, accept, token, api))
        pulled.push(name)
      }
      return pulled
    },
    /**
     * Publishes new files, timestamp.json last or with the others, and removes outdated ones. Resolves to the names of the uploaded files.
     */
    async push(feed: string): Promise<string[]> {
      const folder = join(feed, METADATA_FOLDER)
      const names = (await readdir(folder)).filter((name) => NAME.test(name))
      const release = await changeable()
      if (release === null) return await pushToBranch(branch, folder, names)
      return await pushToRelease(release, folder, names, ask)
    },
  }
}

async function createHolder(releases: string, repository: string, ask: GitHub['ask']): Promise<Holder> {
  const answer = await ask('POST', releases, JSON.stringify(HOLDER))
  if (answer.status === 404)
    throw new BatonError(
      'release_not_found',
      `the repository ${repository} does not exist, or the token cannot write to it`,
    )
  return (await answer.json()) as Holder
}

async function pushToRelease(
  { upload_url: template, assets }: Holder,
  folder: string,
  names: readonly string[],
  ask: GitHub['ask'],
): Promise<string[]> {
  const upload = template.replace(/\{.*\}$/, '')
  const known = new Set(assets.map(({ name }) => name))
  const fresh = names.filter((name) => name !== TIMESTAMP && !known.has(name))
  for (const name of fresh) await ask('POST', `${upload}?name=${name}`, await readFile(join(folder, name)))
  const remove = async (one: string): Promise<void> => {
    const there = assets.find(({ name }) => name === one)
    if (there !== undefined) await ask('DELETE', there.url)
  }
  await remove(NEXT) // left of a push that was cut off
  const next = await ask('POST', `${upload}?name=${NEXT}`, await readFile(join(folder, TIMESTAMP)))
  const { url } = (await next.json()) as Asset
  await remove(TIMESTAMP)
  await ask('PATCH', url, JSON.stringify({ name: TIMESTAMP }))
  for (const old of outdatedAmong([...known, ...fresh])) await remove(old)
  return [...fresh, TIMESTAMP]
}

/** All files at once: what a reader sees is the branch before or after. Resolves to the names of the new ones. */
async function pushToBranch(branch: Branch, folder: string, names: readonly string[]): Promise<string[]> {
  const before = (await branch.files()) ?? []
  const known = new Set(before.map(({ name }) => name))
  const old = new Set(outdatedAmong([...known, ...names]))
  const texts = new Map<string, string>()
  for (const name of names) if (!old.has(name)) texts.set(name, await readFile(join(folder, name), 'utf8'))
  // such as the roots of before, if this folder lacks them
  const kept = before.filter(({ name }) => NAME.test(name) && !texts.has(name) && !old.has(name))
  await branch.replace(texts, kept, 'Trust metadata')
  return [...texts.keys()].filter((name) => name !== TIMESTAMP && !known.has(name)).concat(TIMESTAMP)
}

/** The API redirects to another host for the bytes. That host must not see the token: `fetch` drops it when the origin changes. */
async function download(url: string, name: string, accept: string, token: string | null, api: string): Promise<Buffer> {
  if (new URL(url).origin !== new URL(api).origin)
    throw new BatonError('check_failed', `${name}: expected an address on the API host, got one on another host`)
  const answer = await fetch(url, {
    headers: {
      accept,
      'user-agent': 'baton',
      ...(token === null ? {} : { authorization: `Bearer ${token}` }),
    },
    signal: AbortSignal.timeout(TIMEOUT_MS),
  })
  const bytes = Buffer.from(await answer.arrayBuffer())
  if (!answer.ok) throw new BatonError('check_failed', `cannot download ${name}: HTTP status ${answer.status}`)
  if (bytes.length <= FILE_MAX_BYTES) return bytes
  const fault = `it has ${bytes.length} bytes; the limit is ${FILE_MAX_BYTES}`
  throw new BatonError('check_failed', `cannot download ${name}: ${fault}`)
}

interface BranchFile {
  name: string
  url: string
  /** of the blob */
  sha: string
}

type Branch = ReturnType<typeof openBranch>

/**
 * A branch that holds a few text files and nothing else, through the Git data API: no clone, and no git here. Readers see all files of
 * one commit. Only a later commit takes the place of another: whoever was first wins. `repository`: its address in the API.
 */
function openBranch(repository: string, name: string, ask: GitHub['ask']) {
  const ref = `refs/heads/${name}` // in full: a tag may have the same name
  /** its commit; null: there is no such branch */
  const head = async (): Promise<string | null> => {
    const answer = await ask('GET', `${repository}/git/ref/heads/${name}`)
    return answer.ok ? ((await answer.json()) as { object: { sha: string } }).object.sha : null
  }
  const make = async (method: 'POST' | 'PATCH', path: string, body: object): Promise<{ sha: string }> => {
    const answer = await ask(method, `${repository}/git/${path}`, JSON.stringify(body))
    if (answer.ok) return (await answer.json()) as { sha: string }
    throw new BatonError(
      'release_not_found',
      `the repository ${repository} does not exist, or the token cannot write to it`,
    )
  }
  return {
    head,
    /** null: there is no such branch */
    async files() {
      const answer = await ask('GET', `${repository}/contents/?ref=${ref}`)
      return answer.ok ? ((await answer.json()) as BranchFile[]) : null
    },
    /** Makes these the files of the branch: texts by name, and some of those that it has. */
    async replace(texts: ReadonlyMap<string, string>, kept: readonly BranchFile[], message: string): Promise<void> {
      const before = await head()
      const file = { mode: '100644', type: 'blob' }
      const fresh = [...texts].map(([path, content]) => ({ ...file, path, content }))
      const tree = await make('POST', 'trees', {
        tree: [...fresh, ...kept.map(({ name: path, sha }) => ({ ...file, path, sha }))],
      })
      const parents = before === null ? [] : [before]
      const commit = await make('POST', 'commits', { message, tree: tree.sha, parents })
      if (before === null) await make('POST', 'refs', { ref, sha: commit.sha })
      else await make('PATCH', `refs/heads/${name}`, { sha: commit.sha, force: false })
    },
  }
}
