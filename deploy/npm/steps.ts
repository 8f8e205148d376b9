// The steps from a name in a registry to a release, each in a cell: `registryFor` and `askRegistry`, `makeLockFile`,
// `fetchPackages` and `signatures`, then what `make/inside.ts` does.
// Must hold: npm has the network and runs no package's code; a package's code has no network. What makes the executable runs none.

import { chmod, chown, copyFile, rm } from 'node:fs/promises'
import { homedir } from 'node:os'
import { dirname, join } from 'node:path'
import { BatonError, type ErrorCode, MEANINGS, parsedJson, reasonOf } from '../../agent/words.ts'
import { recordOf } from '../lib/agent-answer.ts'
import { type Listed, listedIn } from './registry.ts'
import type { Recipe } from './recipe.ts'
import { type Cell, runInCell } from './sandbox.ts'
import { type Locked, treeIn } from './tree.ts'
import { builderFolder, keepLock, newWork, readBuilders, readLock, type Workshop } from './workshop.ts'
import { manifestOf } from './wrap.ts'

/** Programs that the steps run, and what these read. */
export interface NpmTools {
  /** the Node that Baton brings */
  node: string
  /** path of an npm-cli.js of this host */
  npm: string
  /** this program, which answers to the word `inside` */
  program: readonly string[]
  /** paths that Node and the program are read from */
  sees: readonly string[]
  /** what BATON_CACHE is set to; nothing writes there in a cell */
  cache: string
  /** the kit as a package: a folder */
  kit: string
  calm: boolean
}

const [ASK_MS, FETCH_MS, INSIDE_MS] = [120_000, 15 * 60_000, 45 * 60_000]
const LOCK_MAX_BYTES = 64 * 1024 * 1024
/** member of a kept lock file, which npm does not read: the manifest that it was made of */
const MADE_OF = 'madeOf'
const PASSED = /^(https?_proxy|no_proxy|npm_config_(registry|https?_proxy|proxy|noproxy|.*:registry|strict_ssl))$/i
/** whoever cannot be reached is not waited for: npm's own pauses between its tries are 10 s and a minute */
const SOON = ['--fetch-retry-mintimeout=1000', '--fetch-retry-maxtimeout=5000']
const QUIET = ['--no-audit', '--no-fund', '--loglevel=error']

/** Runs npm where it has the network, and the settings that this program's user has for it. */
async function npm(
  shop: Workshop,
  tools: NpmTools,
  words: readonly string[],
  more: Partial<Cell> = {},
): Promise<string> {
  const cache = await builderFolder(shop, 'npm-cache', true)
  await using settings = await settingsOf(shop, tools)
  const passed = Object.entries(process.env).filter(([name, value]) => PASSED.test(name) && value !== undefined)
  const certificates = process.env['NODE_EXTRA_CA_CERTS']
  const cell: Cell = {
    cwd: '/tmp',
    network: true,
    uid: shop.builder,
    timeoutMs: ASK_MS,
    calm: tools.calm,
    ...more,
    sees: [
      ...tools.sees,
      dirname(dirname(tools.npm)),
      ...settings.sees,
      ...(certificates === undefined ? [] : [certificates]),
      ...(more.sees ?? []),
    ],
    writes: [cache, ...(more.writes ?? [])],
    environment: {
      npm_config_cache: cache,
      npm_config_ignore_scripts: 'true',
      ...settings.environment,
      ...(certificates === undefined ? {} : { NODE_EXTRA_CA_CERTS: certificates }),
      ...Object.fromEntries(passed as [string, string][]),
      ...more.environment,
    },
  }
  const ran = await runInCell(cell, join(shop.folder, 'empty'), words)
  if (ran.exitCode === 0) return ran.stdout
  throw new BatonError('unexpected', `exit code ${ran.exitCode}: ${wordsIn(ran.stderr.trim() || ran.stdout.trim())}`)
}

/** What npm says is wrong: it says that first, and last how it is used. Of another program its last words. */
function wordsIn(said: string): string {
  const lines = said.split('\n')
  const own = lines.filter((line) => /^npm error \S/.test(line) && !line.includes('complete log'))
  return (own.length > 0 ? own.slice(0, 8) : lines.slice(-8)).join(' · ').slice(0, 1500)
}

const cli = ({ node, npm: file }: NpmTools) => [node, file]

/** npm's settings of this user, readable for the builder only while npm runs: they may hold a token. */
async function settingsOf({ folder, builder }: Workshop, tools: NpmTools) {
  const global = join(dirname(tools.npm), '../../../../etc/npmrc')
  const own = process.env['npm_config_userconfig'] ?? join(homedir(), '.npmrc')
  const copy = join(folder, 'npmrc')
  await rm(copy, { force: true })
  const isThere = await copyFile(own, copy).then(
    () => true,
    () => false,
  )
  if (isThere) {
    await chmod(copy, 0o400)
    if (builder !== null) await chown(copy, builder, builder)
  }
  return {
    sees: [global, ...(isThere ? [copy] : [])],
    environment: { npm_config_globalconfig: global, ...(isThere ? { npm_config_userconfig: copy } : {}) },
    [Symbol.asyncDispose]: () => rm(copy, { force: true }),
  }
}

export async function registryFor(shop: Workshop, tools: NpmTools, name: string): Promise<string> {
  const scope = name.startsWith('@') ? name.split('/')[0] : undefined
  const keys = [...(scope === undefined ? [] : [`${scope}:registry`]), 'registry']
  for (const key of keys) {
    const said = (await npm(shop, tools, [...cli(tools), 'config', 'get', key])).trim()
    if (said !== 'undefined' && said !== '') return said
  }
  throw new BatonError('check_failed', 'the npm configuration names no registry')
}

const FIELDS = ['version', 'deprecated', 'bin', 'engines', 'dist', '_npmUser']

/** npm asks by the ETag of what it has. Throws BatonError release_not_found or check_failed. */
export async function askRegistry(shop: Workshop, tools: NpmTools, name: string): Promise<Listed> {
  const view = async (what: string, fields: readonly string[]) => {
    const text = await npm(shop, tools, [...cli(tools), 'view', what, ...fields, '--json', ...QUIET]).catch(
      (cause: unknown) => {
        const why = reasonOf(cause)
        const isAbsent = /E404|404 Not Found|No match found/.test(why)
        throw new BatonError(
          isAbsent ? 'release_not_found' : 'check_failed',
          `asking the registry for ${what}: ${why.slice(0, 500)}`,
          {
            cause,
            ...(isAbsent ? { hint: 'check the package name; a private package needs a token in ~/.npmrc' } : {}),
          },
        )
      },
    )
    return parsedJson(text)
  }
  return listedIn(name, await view(name, ['name', 'dist-tags', 'time']), await view(`${name}@>=0.0.0`, FIELDS))
}

/**
 * The lock file of a version: made once, then kept, unless a recipe has it need other packages since. Nothing of a package is fetched for
 * it but what the registry says.
 */
export async function makeLockFile(
  shop: Workshop,
  tools: NpmTools,
  recipe: Recipe,
  version: string,
  registry: string,
): Promise<{ text: string; tree: Locked[] }> {
  const manifest = JSON.stringify(manifestOf(shop.service, recipe, version))
  const kept = await readLock(shop, version)
  if (kept !== null && isMadeOf(kept, manifest)) return { text: kept, tree: treeIn(kept, registry) }
  const folder = await builderFolder(shop, 'resolve')
  const make = `printf %s "$0" >package.json && exec "$@" install --package-lock-only --omit=dev --ignore-scripts --omit-lockfile-registry-resolved=false ${QUIET.join(' ')}`
  await npm(shop, tools, ['/bin/sh', '-c', make, manifest, ...cli(tools)], {
    cwd: folder,
    writes: [folder],
    timeoutMs: FETCH_MS,
  }).catch((cause: unknown) => {
    throw unresolved(reasonOf(cause)) ?? cause
  })
  const made = JSON.parse(await readBuilders(join(folder, 'package-lock.json'), LOCK_MAX_BYTES)) as object
  const text = JSON.stringify({ ...made, [MADE_OF]: manifest }, null, 2)
  const tree = treeIn(text, registry)
  await keepLock(shop, version, text)
  await rm(folder, { recursive: true, force: true })
  return { text, tree }
}

/** Why npm has found no tree of packages, if a person can do something about it; null: anything else. `said`: by npm. Pure. */
export function unresolved(said: string): BatonError | null {
  const told = (code: ErrorCode, message: string, hint: string) => new BatonError(code, `${message}: ${said}`, { hint })
  if (/\b(?:E404|ETARGET|notarget)\b/.test(said))
    return told(
      'check_failed',
      'npm could not find a package that this one needs',
      'try another version with `--release`',
    )
  if (/\bssh:|git (?:ls-remote|clone)|unknown git error/.test(said))
    return told(
      'refused',
      'a dependency of this package comes from git, but only packages from the registry can be used',
      'try another version with `--release`, or another package',
    )
  if (/\b(?:EAI_AGAIN|ENOTFOUND|ECONNREFUSED|ECONNRESET|ETIMEDOUT)\b/.test(said))
    return told(
      'check_failed',
      'npm could not reach its registry',
      'to test the connection, run `npm ping` on this host',
    )
  return null
}

function isMadeOf(lock: string, manifest: string): boolean {
  const said = recordOf(parsedJson(lock))[MADE_OF]
  return said === undefined || said === manifest // none is said by a Baton of before
}

/** Throws BatonError verify_failed if a package is not the one of the lock file. Resolves to the folder that is built in. */
export async function fetchPackages(
  shop: Workshop,
  tools: NpmTools,
  recipe: Recipe,
  version: string,
  text: string,
): Promise<string> {
  const { work, modules } = await newWork(shop, text, manifestOf(shop.service, recipe, version))
  const get = `kit=$0; "$@" ci --omit=dev --ignore-scripts --no-bin-links ${QUIET.join(' ')} && rm -rf node_modules/baton-kit && cp -R "$kit" node_modules/baton-kit`
  const cell = { cwd: work, sees: [work, tools.kit], writes: [modules], timeoutMs: FETCH_MS }
  await npm(shop, tools, ['/bin/sh', '-c', get, tools.kit, ...cli(tools)], cell).catch((cause: unknown) => {
    const why = reasonOf(cause)
    const isOther = /EINTEGRITY/.test(why)
    throw new BatonError(
      isOther ? 'verify_failed' : 'check_failed',
      isOther
        ? `a package does not match the lock file of ${version}: ${why.slice(0, 500)}`
        : `fetching the packages of ${version}: ${why.slice(0, 500)}`,
      { cause },
    )
  })
  return work
}

/** A sentence: what the registry's signatures say of the packages. Throws BatonError verify_failed if one is wrong. */
export async function signatures(shop: Workshop, tools: NpmTools, work: string): Promise<string> {
  // whole, whatever its exit code: the line that says what is wrong stands before the names of all packages
  const all = ['/bin/sh', '-c', '"$@" 2>&1 || :', 'npm']
  const words = [...all, ...cli(tools), 'audit', 'signatures', '--omit=dev', '--loglevel=error', ...SOON]
  const cell = { cwd: work, sees: [work], timeoutMs: FETCH_MS }
  const said = await npm(shop, tools, words, cell).catch(reasonOf)
  if (/verified registry signatures?|verified attestations?/.test(said) && !/invalid|missing/.test(said))
    return said.trim().split('\n').filter(Boolean).slice(1).join('; ').slice(0, 200) || 'signatures verified'
  if (/invalid (registry )?(signature|attestation)/i.test(said))
    throw new BatonError('verify_failed', `npm found an invalid signature or attestation: ${said.slice(0, 800)}`)
  const lines = said.split(' · ').flatMap((part) => part.split('\n'))
  const missing = lines.find((line) => / missing /.test(line))
  if (missing !== undefined) return missing.slice(0, 200).replace(/:$/, '')
  const why = lines
    .map((line) => line.replace(/^.*?npm error /, ''))
    .find((line) => line !== '' && !/^(code|errno|syscall|path) |complete log/.test(line))
  return `signatures were not checked: ${why?.slice(0, 200) ?? 'npm gave no reason'}`
}

/** Runs a part of this program in a cell without a network, and resolves to what it says. */
export async function inside<T>(
  shop: Workshop,
  tools: NpmTools,
  asked: { do: string; work: string },
  { uid, writes = [], sees = [] }: { uid: number | null; writes?: readonly string[]; sees?: readonly string[] },
): Promise<T> {
  const cell: Cell = {
    cwd: '/tmp',
    sees: [...tools.sees, dirname(dirname(tools.npm)), asked.work, ...sees],
    writes,
    network: false,
    uid,
    environment: { BATON_CACHE: tools.cache },
    timeoutMs: INSIDE_MS,
    calm: tools.calm,
  }
  const { exitCode, stdout, stderr } = await runInCell(cell, join(shop.folder, 'empty'), [
    ...tools.program,
    'inside',
    JSON.stringify(asked),
  ])
  // whatever a package has printed before it; it may also have printed this, so each member is checked
  const said = recordOf(parsedJson(stdout.trimEnd().split('\n').at(-1) ?? ''))
  if (exitCode === 0 && 'done' in said) return said['done'] as T
  const { code, message, hint } = recordOf(said['failed'])
  throw new BatonError(
    typeof code === 'string' && Object.hasOwn(MEANINGS, code) ? (code as ErrorCode) : 'unexpected',
    typeof message === 'string'
      ? message
      : `the step \`${asked.do}\` failed (exit code ${exitCode}); output: ${stderr.trim().slice(-500) || 'none'}`,
    typeof hint === 'string' ? { hint } : {},
  )
}

export async function manifestIn(work: string, name: string): Promise<Record<string, unknown>> {
  return JSON.parse(await readBuilders(join(work, 'node_modules', name, 'package.json'), 4 * 1024 * 1024)) as Record<
    string,
    unknown
  >
}
