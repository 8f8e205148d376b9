// Starts the built release as an installer would, in an empty folder, and sends it a request: a green build is worth nothing if
// the release does not start. Must hold: whatever the application does, it is ended and leaves nothing behind.

import { type ChildProcess, spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { constants, copyFile, mkdir, readdir, writeFile } from 'node:fs/promises'
import { createServer } from 'node:net'
import { basename, join, relative } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { databasesIn, TRIAL } from '../../agent/install.ts'
import { BatonError, reasonOf } from '../../agent/words.ts'
import { onlyOneCanHave } from '../lib/only-one.ts'
import { httpStatusOf } from '../lib/http.ts'
import { formatDuration } from '../lib/progress.ts'
import { temporaryPlace } from '../lib/trusted.ts'
import { provideNode } from './node.ts'
import type { Project } from './project.ts'
import { temporaryDirectory } from './temporary.ts'

const START_MS = 60_000
const STOP_MS = 10_000
const SAID_MAX_CHARS = 2000

/** Resolves to a line for a person. Throws BatonError verify_failed with the application's output. */
export async function tryOut(project: Project, built: string): Promise<string> {
  // not below the project: Node would find a forgotten package in the project's node_modules
  await using work = await temporaryDirectory(await temporaryPlace())
  const [executable, state, config] = ['service', 'state', 'config.json'].map((name) => join(work.path, name)) as [
    string,
    string,
    string,
  ]
  await copyFile(built, executable, constants.COPYFILE_FICLONE)
  await mkdir(state)
  const port = await freePort()
  const password = randomBytes(16).toString('hex')
  const settings = { dashboard: { password }, listen: { host: '127.0.0.1', port }, stateDirectory: state }
  await writeFile(config, JSON.stringify(settings), { mode: 0o600 })
  const startedAt = performance.now()
  const child = spawn(executable, ['serve', '--config', config], {
    cwd: state,
    env: {
      ...process.env,
      STATE_DIRECTORY: state,
      BATON_NODE: await provideNode(),
      NODE_OPTIONS: '',
      [TRIAL]: '1',
    },
    stdio: ['ignore', 'pipe', 'pipe'],
    detached: true,
  })
  let said = ''
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => (said = (said + text).slice(-SAID_MAX_CHARS)))
  let ended: string | null = null
  child.once('error', (error) => (ended = error.message))
  child.once('exit', (code, signal) => (ended = signal === null ? `exit code ${code}` : signal))
  try {
    const url = `http://127.0.0.1:${port}${project.healthPath ?? '/'}`
    const answer = await answerOf(url, project.healthPath !== null, () => ended)
    if (typeof answer === 'string') {
      throw new BatonError(
        'verify_failed',
        `starting what was built: ${answer}; it said: ${said.trim() || 'nothing'}`,
        {
          hint: 'it is started in an empty directory with the variables of `environment` in baton.config.json; `--no-check` leaves this out',
        },
      )
    }
    await refuseDatabases(join(work.path, `.${project.service}`))
    const path = project.healthPath ?? '/'
    const odd = answer >= 400 ? ' (name a page that answers 200 in `healthPath`)' : ''
    const open = /serving \S+ on (?:\[::\]|0\.0\.0\.0):/.test(said)
      ? '; it listens on every address, whatever address it is told (`{host}`, by default in HOST)'
      : ''
    const took = formatDuration(performance.now() - startedAt)
    return `serves ${path} with ${answer}${odd} after ${took}${open}${await againstTogether(project, child.pid ?? 0, port)}`
  } finally {
    await end(child, () => ended !== null)
  }
}

/** What this start shows that two processes cannot have at once, if two are to live at once. */
async function againstTogether({ switch: kind, servers }: Project, pid: number, port: number): Promise<string> {
  if (kind !== 'together') return ''
  const against = await onlyOneCanHave(pid, servers === null ? null : { port, servers })
  if (against.length === 0) return ''
  return `; warning: \`switch\` is "together", but only one process can have ${against.join(', ')}`
}

/** Refuses an application with a database in its own folder: each release has a separate folder, so an update would lose it. */
async function refuseDatabases(home: string): Promise<void> {
  for (const name of await readdir(home).catch(() => [])) {
    const [database] = await databasesIn(join(home, name))
    if (database === undefined) continue
    const path = relative(join(home, name, 'app'), database)
    throw new BatonError(
      'verify_failed',
      `expected no data inside the application's own folder, found the database ${path}: each release has a folder of its own, and an update would begin with an empty ${basename(path)}`,
      {
        hint: 'tell the application where its data belongs: by a variable of its own in `environment` of baton.config.json, such as "DATA_DIR": "{stateDirectory}" (the default ones are given with it only if they stand there too), or by STATE_DIRECTORY, which it is given anyway',
      },
    )
  }
}

/** The HTTP status; or a text that says why there is none. */
async function answerOf(url: string, mustBeWell: boolean, ended: () => string | null): Promise<number | string> {
  const deadline = performance.now() + START_MS
  let last = 'no answer'
  while (performance.now() < deadline) {
    const why = ended()
    if (why !== null) return `it ended with ${why}`
    try {
      const status = await httpStatusOf(url, 3000)
      if (status < 300 || (!mustBeWell && status < 500)) return status
      last = `${url} answers ${status}`
    } catch (error) {
      last = reasonOf(error)
    }
    await sleep(50)
  }
  return `expected an answer from ${url} within ${START_MS / 1000} s, got ${last}`
}

async function end(child: ChildProcess, hasEnded: () => boolean): Promise<void> {
  const gone = hasEnded() ? Promise.resolve() : once(child, 'exit')
  const signal = (name: NodeJS.Signals) => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, name)
    } catch {
      return // nobody is left
    }
  }
  signal('SIGTERM')
  await Promise.race([gone, sleep(STOP_MS, undefined, { ref: false })])
  signal('SIGKILL')
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  server.close()
  return typeof address === 'object' && address !== null ? address.port : 0
}
