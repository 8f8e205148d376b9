// A real managed install of the reference service in a folder of its own, with a real feed: what the panel is tested on.
// Must hold: whatever becomes of the processes, `close` leaves none.

import { spawn } from 'node:child_process'
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { createHash } from 'node:crypto'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Receipt } from '../../agent/disk/receipt.ts'
import type { UpdateSettings } from '../../agent/settings.ts'
import type { PasswordHeader } from '../../agent/words/bounds.ts'
import type { Status } from '../../agent/words/state.ts'
import { freePort } from '../fixtures/install.ts'
import { publishTo, type TestRelease, unpack } from '../fixtures/releases.ts'
import { releaseServer, type ReleaseServer } from '../lab/release-server.ts'

export const TOKEN = 'correct-horse-battery-staple'

export interface InstallOptions {
  /** the first one is installed */
  releases: readonly TestRelease[]
  /** release notes of all of them; default: as they are */
  notes?: string
  basePath?: string
  /** default: any free one */
  port?: number
  /** `foreign`: its receipt names another executable */
  managed?: boolean | 'foreign'
  update?: UpdateSettings
  passwordHeader?: PasswordHeader
  /** null: none is set */
  password?: string | null
}

export interface Service extends AsyncDisposable {
  url: string
  stateDirectory: string
  feed: ReleaseServer
  /** everything it has said */
  output: () => string
  status: () => Promise<Status>
  start: () => Promise<void>
  /** SIGKILL for every process of it */
  kill: () => Promise<void>
  ask: (method: string, path: string, body?: unknown) => Promise<Response>
}

export async function installService(options: InstallOptions): Promise<Service> {
  const { releases, notes, basePath = '', managed = true, update = {}, passwordHeader = 'authorization' } = options
  const { password = TOKEN } = options
  const [first] = releases
  if (first === undefined) throw new Error('expected a release to install')
  const home = await mkdtemp(join(tmpdir(), 'baton-panel-'))
  const dist = join(home, 'dist')
  await publishTo(dist, releases)
  if (notes !== undefined) for (const { tag } of releases) await rewriteNotes(join(dist, tag), notes)
  const feed = await releaseServer({ dir: dist, quota: 10_000 })
  const executable = join(home, 'app', 'beacon')
  const stateDirectory = join(home, 'state')
  const configPath = join(home, 'config.json')
  const port = options.port || (await freePort())
  await mkdir(join(home, 'app'))
  await mkdir(stateDirectory, { mode: 0o700 })
  await unpack(first, executable)
  const receipt: Receipt = {
    format: 1,
    service: 'beacon',
    executable: managed === 'foreign' ? `${executable}.other` : executable,
    scope: 'user',
    supervisor: 'none',
    user: 'test',
    stateDirectory,
    configPath,
    feed: feed.feed,
    installedAt: new Date().toISOString(),
    options: {},
  }
  if (managed !== false) await writeFile(join(home, 'app', 'receipt.json'), JSON.stringify(receipt))
  const config = {
    dashboard: { ...(password === null ? {} : { password }), passwordHeader },
    listen: { host: '127.0.0.1', port },
    stateDirectory,
    feed: feed.feed,
    update: { probation: '2500ms', drainTimeout: '2s', ...update },
    ...(basePath === '' ? {} : { basePath }),
  }
  await writeFile(configPath, JSON.stringify(config), { mode: 0o600 })

  const url = `http://127.0.0.1:${port}${basePath}`
  let output = ''
  const authorization = `Bearer ${TOKEN}`
  const ask = async (method: string, path: string, body?: unknown) =>
    await fetch(`${url}/admin/update${path}`, {
      method,
      headers: { authorization, connection: 'close', 'content-type': 'application/json' },
      body: body === undefined ? null : JSON.stringify(body),
    })

  const start = async (): Promise<void> => {
    const child = spawn(executable, ['serve', '--config', configPath], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { PATH: process.env['PATH'], HOME: home },
    })
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (part: Buffer) => (output += part.toString()))
    const deadline = Date.now() + 20_000
    while (!(await fetch(`http://127.0.0.1:${port}/healthz`).then(discarded, () => false))) {
      if (Date.now() > deadline || child.exitCode !== null) throw new Error(`the service does not start:\n${output}`)
      await sleep(50)
    }
  }

  const kill = async (): Promise<void> => {
    for (let left = await processesOf(executable); left.length > 0; left = await processesOf(executable)) {
      for (const pid of left) endIfThere(pid)
      await sleep(20)
    }
  }

  const dispose = async (): Promise<void> => {
    await kill()
    await feed.close()
    await rm(home, { recursive: true, force: true })
  }

  await start().catch(async (error: unknown) => {
    await dispose()
    throw error
  })
  return {
    url,
    stateDirectory,
    feed,
    output: () => output,
    start,
    kill,
    ask,
    status: async () => (await (await ask('GET', '/status')).json()) as Status,
    [Symbol.asyncDispose]: dispose,
  }
}

/** release.json is a link into the shared cache: it is replaced, and so is the line of it in SHA256SUMS. */
async function rewriteNotes(folder: string, notes: string): Promise<void> {
  const [manifestPath, sumsPath] = [join(folder, 'release.json'), join(folder, 'SHA256SUMS')]
  const manifest = JSON.parse(await readFile(manifestPath, 'utf8')) as { notes: string }
  const text = JSON.stringify({ ...manifest, notes })
  const sums = await readFile(sumsPath, 'utf8')
  const sha256 = createHash('sha256').update(text).digest('hex')
  for (const path of [manifestPath, sumsPath]) await rm(path)
  await writeFile(manifestPath, text)
  await writeFile(sumsPath, sums.replace(/^[0-9a-f]{64}(?=[ *]+release\.json$)/m, sha256))
}

/** Predecessor and successor: whoever has the executable, whose path is unique, on its command line. */
async function processesOf(executable: string): Promise<number[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const lines = await Promise.all(
    pids.map(async (pid) => await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')),
  )
  return pids.filter((_, index) => lines[index]?.split('\0').includes(executable)).map(Number)
}

function endIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // it has gone by itself
  }
}

async function discarded(response: Response): Promise<boolean> {
  await response.body?.cancel()
  return response.ok
}
