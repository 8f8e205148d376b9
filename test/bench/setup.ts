// Gets the peers: what is on the machine is used, the rest is fetched into .cache/bench and nothing is installed. A peer
// that cannot be had is not an error: it is named as missing, with the command that would bring it.

import { execFile } from 'node:child_process'
import { access, mkdir, readdir, rm, writeFile } from 'node:fs/promises'
import { basename, delimiter, join } from 'node:path'
import { promisify } from 'node:util'
import { bundle } from '../../deploy/make/bundle.ts'
import { PROJECT } from '../../deploy/make/place.ts'
import { noHosts } from '../lab/systemd.ts'

const run = promisify(execFile)

export const CACHE = join(PROJECT, '.cache', 'bench')
const PM2 = 'pm2@7.0.4'
/** the line before the one that releases are built with */
const FORMER_NODE = `node-${process.platform}-${process.arch}@26.9.0`
const PACKAGES = ['nginx-light', 'haproxy', 'caddy', 'wrk', 'zstd', 'bsdiff'] as const
const FETCH_MS = 120_000

export interface Tool {
  path: string
  version: string
  /** for the processes that run it */
  env: NodeJS.ProcessEnv
}

export interface Missing {
  missing: string
}

export interface Tools {
  nginx: Tool | Missing
  haproxy: Tool | Missing
  caddy: Tool | Missing
  pm2: Tool | Missing
  systemd: Tool | Missing
  wrk: Tool | Missing
  curl: Tool | Missing
  zstd: Tool | Missing
  bsdiff: Tool | Missing
  bspatch: Tool | Missing
  formerNode: Tool | Missing
  /** the bundle of test/bench/app.ts */
  app: string
}

export async function setUp(say: (line: string) => void): Promise<Tools> {
  await mkdir(CACHE, { recursive: true })
  const app = await writeBundle('app', join(PROJECT, 'test/bench/app.ts'))
  const names = ['nginx', 'haproxy', 'wrk', 'caddy', 'zstd', 'bsdiff', 'bspatch'] as const
  const found = new Map(await Promise.all(names.map(async (name) => [name, await onPath(name)] as const)))
  const root = join(CACHE, 'apt')
  let aptProblem: string | null = null
  if ([...found.values()].includes(null) && !(await exists(join(root, 'complete')))) {
    say(`fetching ${PACKAGES.join(', ')} into ${root}`)
    aptProblem = await unpackPackages(root)
  }
  const unpacked = async (name: string): Promise<string | null> => {
    const candidates = [join(root, 'usr/sbin', name), join(root, 'usr/bin', name)]
    for (const candidate of candidates) if (await exists(candidate)) return candidate
    return null
  }
  const libraries = (await readdir(join(root, 'usr/lib')).catch(() => [])).map((name) => join(root, 'usr/lib', name))
  const env = { ...process.env, LD_LIBRARY_PATH: [...libraries, process.env['LD_LIBRARY_PATH'] ?? ''].join(delimiter) }

  const native = async (name: (typeof names)[number], flag: string | null): Promise<Tool | Missing> => {
    const own = found.get(name) ?? null
    const path = own ?? (await unpacked(name))
    const why = aptProblem === null ? '' : ` (${aptProblem})`
    const packageName = { nginx: 'nginx-light', bspatch: 'bsdiff' }[name as string] ?? name
    if (path === null) return { missing: `apt-get install ${packageName}${why}` }
    const tool = { path, env: own === null ? env : process.env }
    if (flag === null) return { ...tool, version: name } // it tells none
    const version = await versionOf(tool, flag)
    return version === null
      ? { missing: `apt-get install ${packageName} (\`${path}\` does not run)` }
      : { ...tool, version }
  }
  return {
    nginx: await native('nginx', '-v'),
    haproxy: await native('haproxy', '-v'),
    caddy: await native('caddy', 'version'),
    wrk: await native('wrk', '-v'),
    zstd: await native('zstd', '-qV'),
    bsdiff: await native('bsdiff', null),
    bspatch: await native('bspatch', null),
    curl: await curl(),
    pm2: await pm2(say),
    formerNode: await fromNpm(FORMER_NODE, `node-${process.platform}-${process.arch}/bin/node`, say),
    systemd: await systemd(),
    app,
  }
}

/** `<name>.cjs` in the cache, bundled from `entry`. */
export async function writeBundle(name: string, entry: string, define: Record<string, string> = {}): Promise<string> {
  const path = join(CACHE, `${name}.cjs`)
  await mkdir(CACHE, { recursive: true })
  await writeFile(path, await bundle({ entry, define }))
  return path
}

export const pm2 = async (say: (line: string) => void) => await fromNpm(PM2, 'pm2/bin/pm2', say)

/** `path` below `node_modules` of the package that `spec` names. */
async function fromNpm(spec: string, path: string, say: (line: string) => void): Promise<Tool | Missing> {
  const [name = '', version = ''] = spec.split('@')
  const folder = join(CACHE, 'npm', name)
  const tool = { path: join(folder, 'node_modules', path), version: `${name} ${version}`, env: process.env }
  if (await exists(tool.path)) return tool
  say(`fetching ${spec} into ${folder}`)
  await mkdir(folder, { recursive: true })
  const args = ['install', '--prefix', folder, '--ignore-scripts', '--no-audit', '--no-fund', '--no-save', spec]
  return await run('npm', args, { timeout: FETCH_MS }).then(
    () => tool,
    (error: unknown) => ({ missing: `npm install ${spec} (${firstLine(error)})` }),
  )
}

async function systemd(): Promise<Tool | Missing> {
  const missing = 'apt-get install systemd dbus'
  if (noHosts !== null) return { missing: `${missing} (it ${noHosts})` }
  const tool = { path: '/lib/systemd/systemd', env: process.env }
  const version = await versionOf(tool, '--version')
  return version === null ? { missing: `${missing} (\`${tool.path}\` does not run)` } : { ...tool, version }
}

async function curl(): Promise<Tool | Missing> {
  const path = await onPath('curl')
  const version = path === null ? null : await versionOf({ path, env: process.env }, '--version')
  return path === null || version === null ? { missing: 'apt-get install curl' } : { path, version, env: process.env }
}

/** Downloads the packages and what they need and is not here, and unpacks them. Needs no root. Null, or what went wrong. */
async function unpackPackages(root: string): Promise<string | null> {
  const partial = `${root}.partial`
  try {
    await rm(partial, { recursive: true, force: true })
    await mkdir(partial, { recursive: true })
    const plan = await run('apt-get', ['--simulate', '--no-install-recommends', 'install', ...PACKAGES], {
      timeout: FETCH_MS,
    })
    const names = [...plan.stdout.matchAll(/^Inst (\S+)/gm)].map((match) => match[1] ?? '')
    await run('apt-get', ['download', ...names], { cwd: partial, timeout: FETCH_MS })
    for (const file of await readdir(partial)) {
      if (file.endsWith('.deb')) await run('dpkg-deb', ['--extract', join(partial, file), root])
    }
    await rm(partial, { recursive: true, force: true })
    await writeFile(join(root, 'complete'), names.join('\n'))
    return null
  } catch (error) {
    return firstLine(error)
  }
}

async function versionOf(tool: { path: string; env: NodeJS.ProcessEnv }, flag: string): Promise<string | null> {
  const { stdout, stderr } = await run(tool.path, [flag], { env: tool.env, timeout: 10_000 }).catch(
    (error: { stdout?: string; stderr?: string }) => ({ stdout: error.stdout ?? '', stderr: error.stderr ?? '' }), // wrk -v ends with 1
  )
  const text = `${stdout}${stderr}`
  if (/^v?[0-9]+\.[0-9.]+\s*$/.test(text)) return `${basename(tool.path)} ${text.trim().replace(/^v/, '')}`
  const match = /(nginx|haproxy|wrk|curl|systemd)[^0-9\n]*([0-9][0-9.]*)/i.exec(text)
  return match === null ? null : `${match[1]?.toLowerCase()} ${match[2]}`
}

async function onPath(name: string): Promise<string | null> {
  const folders = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin', '/sbin']
  for (const folder of folders) {
    const path = join(folder, name)
    if (folder !== '' && (await exists(path))) return path
  }
  return null
}

async function exists(path: string): Promise<boolean> {
  return await access(path).then(
    () => true,
    () => false,
  )
}

function firstLine(error: unknown): string {
  const text = error instanceof Error && 'stderr' in error && error.stderr !== '' ? String(error.stderr) : String(error)
  return text.split('\n')[0] ?? ''
}
