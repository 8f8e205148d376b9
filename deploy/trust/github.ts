// Keeps a feed's metadata on GitHub, as assets of one prerelease that is never the latest, through the REST API at any base URL.
// Must hold: the files that timestamp.json refers to are there before it is replaced. The token goes only to the API and its
// upload host, and into no message.

import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { METADATA_FOLDER, parseFeedSetting } from '../../agent/publish.ts'
import { BatonError } from '../../agent/words.ts'
import { openGitHub } from '../lib/github.ts'
import { versionsOf } from './repository.ts'

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
/** snapshots and targets that stay, for a host in the middle of reading; of each role the newest */
const KEPT = 8

const HOLDER = {
  tag_name: METADATA_FOLDER,
  name: 'trust metadata',
  body: 'What hosts verify releases with. Not a release.',
  prerelease: true,
  make_latest: 'false',
}

export interface Hub {
  /** Fetches the metadata into `<feed>/verified/`. Resolves to the names of the fetched files. */
  pull(feed: string): Promise<string[]>
  /** Uploads new files, timestamp.json last, and removes outdated ones. Resolves to the names of the uploaded files. */
  push(feed: string): Promise<string[]>
}

/** `setting`: a host's feed setting, `github:owner/name[@api]`. */
export function openHub(setting: string, environment: NodeJS.ProcessEnv): Hub {
  const parsed = parseFeedSetting(setting)
  if (parsed.kind !== 'github') {
    throw new BatonError('invalid_request', `expected \`github:owner/name\`, got ${setting}`, {
      hint: 'a folder is published by copying it, `verified/timestamp.json` last: rsync -a does',
    })
  }
  const { api, repository } = parsed
  const releases = `${api}/repos/${repository}/releases`
  const { ask, token } = openGitHub(api, environment)
  const holder = async (): Promise<Holder | null> => {
    const answer = await ask('GET', `${releases}/tags/${METADATA_FOLDER}`)
    return answer.status === 404 ? null : ((await answer.json()) as Holder)
  }

  const created = async (): Promise<Holder> => {
    const answer = await ask('POST', releases, JSON.stringify(HOLDER))
    if (answer.status === 404)
      throw new BatonError('release_not_found', `there is no repository ${repository}, or no right to write to it`)
    return (await answer.json()) as Holder
  }

  return {
    async pull(feed) {
      const assets = (await holder())?.assets ?? []
      const folder = join(feed, METADATA_FOLDER)
      await mkdir(folder, { recursive: true })
      const there = new Set(await readdir(folder))
      const pulled: string[] = []
      for (const { name, url } of assets) {
        if (!NAME.test(name) || (there.has(name) && name !== TIMESTAMP)) continue
        await writeFile(join(folder, name), await download(url, name, token, api))
        pulled.push(name)
      }
      return pulled
    },
    async push(feed) {
      const { upload_url: template, assets, immutable } = (await holder()) ?? (await created())
      if (immutable === true) throw refusedAsImmutable(repository)
      const upload = template.replace(/\{.*\}$/, '')
      const folder = join(feed, METADATA_FOLDER)
      const names = (await readdir(folder)).filter((name) => NAME.test(name))
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
      for (const one of outdated(assets, [...known, ...fresh])) await ask('DELETE', one.url)
      return [...fresh, TIMESTAMP]
    },
  }
}

/** Without a newer timestamp.json hosts refuse the feed when its signature expires, so this is told before anything is tried. */
function refusedAsImmutable(repository: string): BatonError {
  return new BatonError(
    'refused',
    `expected a release \`${METADATA_FOLDER}\` of ${repository} whose files can be replaced, found an immutable one`,
    {
      hint: `serve the feed as a folder by https, \`${METADATA_FOLDER}/\` in it, or from a repository that has never had immutable releases. The signed metadata has to be replaced before it expires`,
    },
  )
}

/** Snapshots and targets older than the newest `KEPT` of their role. */
function outdated<T extends { name: string }>(assets: readonly T[], names: readonly string[]): T[] {
  return (['snapshot', 'targets'] as const).flatMap((role) => {
    const kept = versionsOf(role, names)
      .toSorted((a, b) => b - a)
      .slice(0, KEPT)
    return assets.filter(({ name }) => versionsOf(role, [name]).some((version) => !kept.includes(version)))
  })
}

/** The API redirects to another host for the bytes. That host must not see the token: `fetch` drops it when the origin changes. */
async function download(url: string, name: string, token: string | null, api: string): Promise<Buffer> {
  if (new URL(url).origin !== new URL(api).origin)
    throw new BatonError('check_failed', `${name}: expected an address of the API`)
  const answer = await fetch(url, {
    headers: {
      accept: 'application/octet-stream',
      'user-agent': 'baton',
      ...(token === null ? {} : { authorization: `Bearer ${token}` }),
    },
    signal: AbortSignal.timeout(TIMEOUT_MS),
  })
  const bytes = Buffer.from(await answer.arrayBuffer())
  if (answer.ok && bytes.length <= FILE_MAX_BYTES) return bytes
  throw new BatonError(
    'check_failed',
    `fetching ${name}: expected 200 and at most ${FILE_MAX_BYTES} bytes, got ${answer.status}`,
  )
}
