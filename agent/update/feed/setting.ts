// Parses the setting `feed`: one line that says where releases are found. Pure; fuzzed.

import { isAbsolute } from 'node:path'
import { fileURLToPath } from 'node:url'
import { BatonError, reasonOf } from '../../words/errors.ts'
import { quoted } from '../../words/untrusted.ts'
import { isLoopback } from './address.ts'

export type FeedSetting =
  | { kind: 'github'; repository: string; api: string; web: string }
  | { kind: 'web'; base: string }
  | { kind: 'folder'; folder: string }

const GITHUB_API = 'https://api.github.com'
const FORMS =
  'use `github:owner/name`, `github:owner/name@https://host/api/v3`, `https://host/path/`, `/folder` or `file:///folder`'

/** Throws BatonError invalid_settings, with the fault and the forms that are allowed. */
export function parseFeedSetting(setting: string): FeedSetting {
  if (setting.startsWith('github:')) return parseGithub(setting)
  if (isAbsolute(setting)) return folderAt(setting)
  if (/^file:/i.test(setting)) {
    try {
      return folderAt(fileURLToPath(setting))
    } catch (error) {
      throw invalid(setting, reasonOf(error))
    }
  }
  if (/^https?:/i.test(setting)) {
    const url = parseBase(setting, setting)
    return { kind: 'web', base: `${url.href.replace(/\/+$/, '')}/` }
  }
  if (/^\.{0,2}\//.test(setting)) throw invalid(setting, 'the path of a folder must be absolute')
  throw invalid(setting, 'not a feed address')
}

/** The addresses in the setting: requests start there. */
export function homesOf(setting: FeedSetting): string[] {
  switch (setting.kind) {
    case 'github':
      return [setting.api, setting.web]
    case 'web':
      return [setting.base]
    case 'folder':
      return []
    default:
      return setting satisfies never
  }
}

/** The base URL of the web host that belongs to an API's base URL. On it, `/releases/latest` redirects to the newest release. */
export function webHostOf(api: string): string {
  const url = new URL(api)
  url.hostname = url.hostname.replace(/^api\./, '') // api.github.com, api.acme.ghe.com
  url.pathname = url.pathname.replace(/\/api\/v\d+$/, '') // Enterprise Server, Gitea
  return url.href.replace(/\/+$/, '')
}

function parseGithub(setting: string): FeedSetting {
  const at = setting.indexOf('@')
  const repository = setting.slice('github:'.length, at < 0 ? undefined : at)
  if (!isRepository(repository)) {
    throw invalid(setting, `expected a repository \`owner/name\`, got ${quoted(repository)}`)
  }
  const api = at < 0 ? GITHUB_API : parseBase(setting.slice(at + 1), setting).href.replace(/\/+$/, '')
  return { kind: 'github', repository, api, web: webHostOf(api) }
}

function isRepository(name: string): boolean {
  return /^[A-Za-z0-9][A-Za-z0-9-]{0,38}\/[A-Za-z0-9._-]{1,100}$/.test(name) && !/\/\.{1,2}$/.test(name)
}

/** Pure: the repository of a page of releases on this web host; null if it is another page. */
export function repositoryOf(page: string | null, web: string): string | null {
  if (page === null || !page.startsWith(`${web}/`)) return null
  const [, name = ''] = /^([^/?#]+\/[^/?#]+)\/releases(?:[/?#]|$)/.exec(page.slice(web.length + 1)) ?? []
  return isRepository(name) ? name : null
}

/** Pure: the setting that names this repository. */
export function githubSetting(repository: string, api: string): string {
  return `github:${repository}${api === GITHUB_API ? '' : `@${api}`}`
}

/** The variables of `gh`, the first that is set counts: some for github.com, others for every other host, so that no host gets another's token. */
export function tokenNames(api: string): [string, string] {
  return api === GITHUB_API ? ['GH_TOKEN', 'GITHUB_TOKEN'] : ['GH_ENTERPRISE_TOKEN', 'GITHUB_ENTERPRISE_TOKEN']
}

function parseBase(text: string, setting: string): URL {
  const url = URL.parse(text)
  if (url === null) throw invalid(setting, `${quoted(text)} is not a URL`)
  // checked before any message shows the setting: the part between // and @ may be a password
  if (url.username !== '' || url.password !== '') {
    throw new BatonError('invalid_settings', `feed: credentials do not belong in the address of \`${url.host}\``)
  }
  if (url.protocol !== 'https:' && url.protocol !== 'http:')
    throw invalid(setting, `expected an https address, got one with \`${url.protocol}\``)
  if (url.protocol === 'http:' && !isLoopback(url.hostname))
    throw invalid(setting, 'plain http is allowed only for addresses on this machine')
  if (url.search !== '' || url.hash !== '') throw invalid(setting, 'a folder URL cannot contain ? or #')
  return url
}

function folderAt(folder: string): FeedSetting {
  if (folder.includes('\0')) throw invalid(folder, 'a path cannot contain NUL')
  return { kind: 'folder', folder }
}

function invalid(setting: string, why: string): BatonError {
  return new BatonError('invalid_settings', `feed ${quoted(setting)}: ${why}`, { hint: FORMS })
}
