// Publishes a release on GitHub, through the REST API at any base URL. It stays a draft until every asset is there, so that no
// reader sees half of one.
// Must hold: a published release is never replaced. A draft that an interrupted upload left is finished, not made a second time.

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { parseFeedSetting } from '../../agent/publish.ts'
import { BatonError, isPrerelease, type ReleaseManifest } from '../../agent/words.ts'
import { openGitHub } from '../lib/github.ts'
import type { ProgressReport } from '../lib/progress.ts'
import { formatBytes } from '../lib/progress.ts'

interface Asset {
  name: string
  url: string
  browser_download_url: string
}

interface Release {
  tag_name: string
  draft: boolean
  url: string
  html_url: string
  upload_url: string
  assets: Asset[]
}

export interface GitHubOptions {
  /** folder of the release */
  folder: string
  tag: string
  /** `github:owner/name[@api]`, as in a host's feed setting */
  to: string
  progress: ProgressReport
  environment?: NodeJS.ProcessEnv
}

const SUMS = 'SHA256SUMS'

/** Resolves to the address of the release's page. Throws BatonError refused if a different release has this tag. */
export async function publishToGitHub(options: GitHubOptions): Promise<string> {
  const { folder, tag, to, progress, environment = process.env } = options
  const parsed = parseFeedSetting(to)
  if (parsed.kind !== 'github') throw new BatonError('invalid_request', `expected github:owner/name, got ${to}`)
  const { api, repository } = parsed
  const { ask, token } = openGitHub(api, environment)
  if (token === null) {
    const name = api === 'https://api.github.com' ? 'GH_TOKEN' : 'GH_ENTERPRISE_TOKEN'
    throw new BatonError('refused', `expected a token in ${name} to publish to ${repository}`, {
      hint: `set \`${name}=$(gh auth token)\`, or use a token with the \`contents: write\` permission`,
    })
  }
  const releases = `${api}/repos/${repository}/releases`
  progress.stage('draft', `${repository} ${tag}`)
  const found = await find(ask, releases, tag)
  const sums = await readFile(join(folder, SUMS), 'utf8')
  if (found !== null && !found.draft) {
    if ((await sumsOf(ask, found)) !== sums) {
      throw new BatonError('refused', `${repository} already has a different ${tag}`, {
        hint: 'choose another tag: a published release is never replaced',
      })
    }
    progress.end('done', `${repository} ${tag} (already published, identical)`)
    return found.html_url
  }
  const draft = found ?? (await create(ask, releases, folder, tag))
  const upload = draft.upload_url.replace(/\{.*\}$/, '')
  const names = [...sums.split('\n').flatMap((line) => (line === '' ? [] : [line.slice(66)])), SUMS]
  for (const name of names) {
    const left = draft.assets.find((asset) => asset.name === name) // from an upload that was cut short
    if (left !== undefined) await ask('DELETE', left.url)
    const bytes = await readFile(join(folder, name))
    progress.stage('upload', `${name}, ${formatBytes(bytes.length)}`)
    await ask('POST', `${upload}?name=${encodeURIComponent(name)}`, bytes)
  }
  progress.stage('publish', tag)
  const published = await ask('PATCH', draft.url, JSON.stringify({ draft: false }))
  progress.end('done', `${repository} ${tag}`)
  return ((await published.json()) as Release).html_url
}

type Ask = ReturnType<typeof openGitHub>['ask']

/** GitHub does not find a draft by its tag: this looks through the newest hundred releases. */
async function find(ask: Ask, releases: string, tag: string): Promise<Release | null> {
  const answer = await ask('GET', `${releases}/tags/${tag}`)
  if (answer.status !== 404) return (await answer.json()) as Release
  const listed = await ask('GET', `${releases}?per_page=100`)
  if (listed.status === 404) return null
  return ((await listed.json()) as Release[]).find(({ tag_name, draft }) => draft && tag_name === tag) ?? null
}

async function create(ask: Ask, releases: string, folder: string, tag: string): Promise<Release> {
  const { notes } = JSON.parse(await readFile(join(folder, 'release.json'), 'utf8')) as ReleaseManifest
  const body = { tag_name: tag, name: tag, body: notes, draft: true, prerelease: isPrerelease(tag) }
  const answer = await ask('POST', releases, JSON.stringify(body))
  if (answer.status === 404)
    throw new BatonError('release_not_found', 'there is no such repository, or the token cannot write to it')
  return (await answer.json()) as Release
}

async function sumsOf(ask: Ask, { assets }: Release): Promise<string | null> {
  const asset = assets.find(({ name }) => name === SUMS)
  return asset === undefined ? null : await (await ask('GET', asset.browser_download_url)).text()
}
