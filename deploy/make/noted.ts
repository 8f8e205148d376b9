// What an application does at its start that no look from outside shows, or only Linux: it binds ports, runs programs that have
// ended by then, starts threads, and reads `.env` files. Node loads a few lines before the application, which note that in a file.
// Must hold: the application works as without them: each note is made before the call that it is about, which is passed on unchanged.

import { readFile } from 'node:fs/promises'
import { basename, join } from 'node:path'

export interface Noted {
  /** TCP and UDP ports that it asked for, and paths of unix sockets; sorted */
  listens: string[]
  /** names of the programs that it ran; sorted */
  runs: string[]
  threads: number
  /** whether it handles SIGTERM */
  hearsSigterm: boolean
  /** absolute paths of the `.env` files that it read; sorted */
  dotEnv: string[]
}

const NOTES_MAX_BYTES = 256 * 1024
const NAMES_MAX = 20

/** Runs in the application's process, as an ES module, on any Node. `NOTES`: the file's path, as JSON. */
const PRELOAD = `
import fs from 'node:fs'
import net from 'node:net'
import dgram from 'node:dgram'
import threads from 'node:worker_threads'
import programs from 'node:child_process'
import { syncBuiltinESMExports } from 'node:module'
const { appendFileSync } = fs
let left = 1000
const note = (is, what) => {
  try { if (left-- > 0 && threads.isMainThread) appendFileSync(NOTES, JSON.stringify([is, String(what).slice(0, 300)]) + '\\n') } catch {}
}
const before = (object, name, look) => {
  const own = object[name]
  if (typeof own !== 'function') return
  object[name] = new Proxy(own, {
    apply(target, self, args) { look(args); return Reflect.apply(target, self, args) },
    construct(target, args, made) { look(args); return Reflect.construct(target, args, made) },
  })
}
const dotEnv = ([path]) => {
  const text = path instanceof URL ? path.pathname : path
  if (typeof text === 'string' && /(^|[\\/\\\\])\\.env(\\.\\w+)*$/.test(text) && fs.existsSync(text)) note('dotEnv', fs.realpathSync(text))
}
for (const name of ['readFile', 'readFileSync', 'createReadStream', 'open', 'openSync']) before(fs, name, dotEnv)
for (const name of ['readFile', 'open']) before(fs.promises, name, dotEnv)
before(process, 'loadEnvFile', ([path = '.env']) => dotEnv([path]))
before(net.Server.prototype, 'listen', ([at, ...rest]) => {
  const { port, path } = typeof at === 'object' && at !== null ? at : { port: at, path: typeof at === 'string' && isNaN(at) ? at : undefined }
  note('listens', path ?? port ?? 0)
})
before(dgram.Socket.prototype, 'bind', ([at]) => note('listens', 'udp ' + ((typeof at === 'object' ? at?.port : at) ?? 0)))
before(programs.ChildProcess.prototype, 'spawn', ([options]) => note('runs', options?.file))
for (const name of ['spawnSync', 'execFileSync', 'execSync']) before(programs, name, ([file]) => note('runs', String(file).split(' ')[0]))
for (const name of ['on', 'addListener', 'once']) before(process, name, ([event]) => event === 'SIGTERM' && note('hears', event))
before(threads, 'Worker', () => note('threads', 1))
syncBuiltinESMExports()
`

export interface NoteTaker {
  /** for the command line of Node, before the program */
  nodeFlags: string[]
  /** what was noted until now */
  read(): Promise<Noted>
}

/** `folder`: a temporary one, for the notes. */
export function takeNotes(folder: string): NoteTaker {
  const path = join(folder, 'seen')
  const text = PRELOAD.replace('NOTES', JSON.stringify(path))
  return {
    nodeFlags: ['--import', `data:text/javascript,${encodeURIComponent(text)}`],
    read: async () => notedIn(await readFile(path, 'utf8').catch(() => '')),
  }
}

/** Pure. Skips what is not a note: the application can write to the file, too. */
export function notedIn(text: string): Noted {
  const notes = text.slice(0, NOTES_MAX_BYTES).split('\n').flatMap(noteIn)
  const all = (name: string) =>
    [...new Set(notes.flatMap(([is, what]) => (is === name ? what : [])))].toSorted().slice(0, NAMES_MAX)
  return {
    listens: all('listens'),
    runs: all('runs').map((file) => basename(file)),
    threads: notes.filter(([is]) => is === 'threads').length,
    hearsSigterm: all('hears').length > 0,
    dotEnv: all('dotEnv'),
  }
}

function noteIn(line: string): [string, string][] {
  try {
    const [is, what] = JSON.parse(line) as unknown[]
    return typeof is === 'string' && typeof what === 'string' ? [[is, what.replaceAll(/[\p{Cc}\p{Cf}]+/gu, ' ')]] : []
  } catch {
    return []
  }
}
