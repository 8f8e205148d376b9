// A systemd host with a feed of real releases, and the service installed as an operator installs it. For the tests of the installer
// and for all others that need a managed install under systemd.

import { spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { PROJECT } from '../../deploy/make/place.ts'
import type { Status } from '../../agent/words/state.ts'
import { publishTo, releases, type ReleaseSpec } from '../fixtures/releases.ts'
import type { Served, Serving } from '../fixtures/serve-releases.ts'
import { bootHost, type Host, type Ran } from './systemd.ts'

export interface FeedHost extends Host {
  /** the feed setting, a folder inside the host */
  feed: string
  /** the same folder on this machine; the host may not see changes in it after it is switched on */
  folder: string
  /** starts a release server in the host's network */
  serve(options: Serving): Promise<Served & AsyncDisposable>
  /** runs `beacon …` as root */
  cli(...args: string[]): Promise<Ran>
  /** runs a release's install.sh, with this feed */
  installer(tag: string, ...args: string[]): Promise<Ran>
  /** runs this repository's deploy/deploy-systemd.sh */
  deploy(...args: string[]): Promise<Ran>
  /** sends a request to an endpoint below /admin/update, as the panel does; `body` null sends none */
  ask(method: 'GET' | 'POST', target: string, body?: unknown): Promise<{ status: number; body: string }>
  /** installs v1.0.0 (or `tag`), shortens the probation and starts it */
  install(update?: Record<string, unknown>, tag?: string): Promise<void>
  status(): Promise<Status>
  /** properties of the unit */
  show(...names: string[]): Promise<Record<string, string>>
  /** asks a database as the service's user; default: the reference service's */
  sql(statement: string, database?: string): Promise<string>
  /** switches the host on again after a power cut */
  again(): Promise<void>
}

export const SERVICE = 'beacon'
export const EXECUTABLE = `/opt/${SERVICE}/${SERVICE}`
export const DATABASE = `/var/lib/${SERVICE}/${SERVICE}.db`
const FEED = '/srv/feed'
let count = 0

/** Boots a host with these releases in /srv/feed. */
export async function bootWithReleases(specs: readonly ReleaseSpec[]): Promise<FeedHost> {
  return await bootWithFeed(async (folder) => void (await publishTo(folder, await releases(specs))))
}

/** Boots a host with a feed that `fill` makes: a folder on this machine, which the host sees as /srv/feed. */
export async function bootWithFeed(fill: (folder: string) => Promise<void>): Promise<FeedHost> {
  const feeds = join(PROJECT, '.cache', 'host-feeds')
  // remove the folders of tests that were killed
  for (const name of await readdir(feeds).catch(() => [])) {
    if (!existsSync(`/proc/${name.split('-')[0] ?? ''}`)) await rm(join(feeds, name), { recursive: true, force: true })
  }
  const folder = join(feeds, `${process.pid}-${++count}`)
  await mkdir(folder, { recursive: true })
  await fill(folder)
  const host = await bootHost()
  const mountFeed = async () => {
    await host.ok('mkdir', '-p', FEED)
    await host.ok('mount', '--bind', folder, FEED)
  }
  const off = async () => {
    await host.off()
    await rm(folder, { recursive: true, force: true })
  }
  try {
    await mountFeed()
  } catch (error) {
    await off()
    throw error
  }
  const cli: FeedHost['cli'] = (...args) => host.run([SERVICE, ...args])
  const installer: FeedHost['installer'] = (tag, ...args) =>
    host.run(['sh', join(FEED, tag, 'install.sh'), ...args, '--feed', FEED])
  const ask: FeedHost['ask'] = (...words) => askService(host, ...words)
  return {
    ...host,
    feed: FEED,
    folder,
    serve: async (options) => await serveIn(await host.network(), options),
    cli,
    installer,
    deploy: (...args) => host.run([join(PROJECT, 'deploy/deploy-systemd.sh'), ...args], { env: compiledOnce() }),
    async install(update = { probation: '1s' }, tag = 'v1.0.0') {
      const installed = await installer(tag, 'install', '-y', '--no-start')
      if (installed.code !== 0) throw new Error(`install: ${installed.stderr}`)
      await setUpdate(host, update)
      // from here on root runs the command that install.sh has installed
      const started = await cli('install', '-y', '--start')
      if (started.code !== 0) throw new Error(`install --start: ${started.stderr}`)
    },
    ask,
    status: async () => JSON.parse((await ask('GET', '/status')).body) as Status,
    async show(...names) {
      const text = await host.ok(
        'systemctl',
        'show',
        ...names.map((name) => `--property=${name}`),
        `${SERVICE}.service`,
      )
      const pairs = text
        .trim()
        .split('\n')
        .map((line) => line.split(/=(.*)/s))
      return Object.fromEntries(pairs.map(([name = '', value = '']) => [name, value]))
    },
    sql: (statement, database = DATABASE) =>
      host.ok('runuser', '-u', SERVICE, '--', 'sqlite3', '-cmd', '.timeout 5000', database, statement),
    async again() {
      await host.power()
      await mountFeed()
    },
    off,
    [Symbol.asyncDispose]: off,
  }
}

/** Sends a request to an endpoint below /admin/update of a host's service, as its panel does; `body` null sends none. */
export async function askService(
  host: Host,
  method: 'GET' | 'POST',
  target: string,
  body: unknown = null,
): Promise<{ status: number; body: string }> {
  const config = JSON.parse(await readFile(await host.path(`/etc/${SERVICE}/config.json`), 'utf8')) as {
    dashboard: { password: string }
    listen: { port: number }
  }
  const url = `http://127.0.0.1:${config.listen.port}/admin/update${target}`
  const header = `Authorization: Bearer ${config.dashboard.password}`
  const data = body === null ? [] : ['-H', 'content-type: application/json', '-d', JSON.stringify(body)]
  const curl = ['curl', '-sS', '--max-time', '5', '-w', '\n%{http_code}', '-X', method]
  const said = await host.ok(...curl, '-H', header, ...data, url)
  const end = said.lastIndexOf('\n')
  return { status: Number(said.slice(end + 1)), body: said.slice(0, end) }
}

/** For a command of this repository's in a host: what is compiled of its sources is kept for the next one, as outside. */
export function compiledOnce(): Record<string, string> {
  const cache = process.env['NODE_COMPILE_CACHE']
  return cache === undefined ? {} : { NODE_COMPILE_CACHE: cache }
}

/** Starts a release server in the network that the prefix enters. */
export async function serveIn(prefix: readonly string[], options: Serving): Promise<Served & AsyncDisposable> {
  const [command = '', ...args] = prefix
  const program = [process.execPath, ...process.execArgv, join(PROJECT, 'test/fixtures/serve-releases.ts')]
  const child = spawn(command, [...args, ...program, JSON.stringify(options)], { stdio: ['pipe', 'pipe', 'inherit'] })
  const ended = new Promise((resolve) => child.once('exit', resolve))
  for await (const line of createInterface({ input: child.stdout })) {
    return {
      ...(JSON.parse(line) as Served),
      async [Symbol.asyncDispose]() {
        child.stdin.end()
        await ended
      },
    }
  }
  throw new Error('the release server did not come up')
}

/** The objects that a command with `--json` printed, one a line. */
export function eventsIn(stdout: string): Record<string, unknown>[] {
  return stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>)
}

/**
 * Sets `update` in the service's configuration: by default an operation takes half a minute. Takes effect at the next start. No release is
 * tried on a copy of the data, unless `update` says so: most tests want a bad one to come further.
 */
export async function setUpdate(
  host: Host,
  update: Record<string, unknown>,
  path = `/etc/${SERVICE}/config.json`,
): Promise<void> {
  const outside = await host.path(path)
  const config = JSON.parse(await readFile(outside, 'utf8')) as object
  await writeFile(outside, JSON.stringify({ ...config, update: { trial: 'never', ...update } }))
}

/** What reads the log for a `beacon logs -f` of root's: its program, its user, and the environment that it has. */
export async function readerOfLogs(host: Host, env: Readonly<Record<string, string>>) {
  const look = `${SERVICE} logs -f >/dev/null 2>&1 & asked=$!
for _ in $(seq 200); do
  reader=$(pgrep -P $asked) && program=$(tr '\\0' '\\n' </proc/$reader/cmdline | head -n 1)
  case \${program-} in tail | journalctl) break ;; esac
  sleep 0.05
done
printf '%s\\n' "\${program-}" "$(stat -c %U /proc/$reader)"
tr '\\0' '\\n' </proc/$reader/environ
kill $asked
wait $asked`
  const { stdout } = await host.run(['sh', '-c', look], { env })
  const [program, user, ...environment] = stdout.trim().split('\n')
  return { program, user, environment: environment.toSorted() }
}

/** Writes a file on the host's disk, as root; makes its folder. */
export async function put(host: Host, path: string, text: string): Promise<void> {
  const outside = await host.path(path)
  await mkdir(join(outside, '..'), { recursive: true })
  await writeFile(outside, text)
}
