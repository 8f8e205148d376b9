// What an application does at its start that no look from outside shows, or only Linux: it binds ports, runs programs that have
// ended by then, starts threads, reads `.env` files, and looks for files that are not there. Node loads a few lines before the application,
// which note that in a file.
// Must hold: the application works as without them: each note is made before the call that it is about, which is passed on unchanged.

import { writeFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { parsedJson } from '../../agent/words.ts'

export interface Noted {
  /** TCP and UDP ports that it asked for, `{port}` for the one that it was given, and paths of unix sockets; sorted */
  listens: string[]
  /** names of the programs that it ran; sorted */
  runs: string[]
  threads: number
  /** as `listens`, of its worker threads */
  inThreads: string[]
  /** what it looked for in the directory in which it was started, and did not find there; relative paths, sorted */
  absent: string[]
  /** directories that it makes if they are missing; absolute paths, sorted */
  makes: string[]
  /** whether it handles SIGTERM */
  hearsSigterm: boolean
  /** absolute paths of the `.env` files that it read; sorted */
  dotEnv: string[]
}

const NOTES_MAX_BYTES = 256 * 1024
const NAMES_MAX = 20
const ABSENT_MAX = 300

/** Runs in the application's process, as an ES module, on any Node. `NOTES`: the file's path, as JSON. */
const PRELOAD = `
import fs from 'node:fs'
import net from 'node:net'
import dgram from 'node:dgram'
import threads from 'node:worker_threads'
import programs from 'node:child_process'
import { syncBuiltinESMExports } from 'node:module'
import { resolve, sep } from 'node:path'
import { fileURLToPath } from 'node:url'
const { appendFileSync, existsSync } = fs
const start = process.cwd() + sep
const looked = new Set()
let left = 1000
const note = (is, what) => {
  try { if (left-- > 0) appendFileSync(NOTES, JSON.stringify([is, String(what).slice(0, 300)]) + '\\n') } catch {}
}
const absent = ([path, flags]) => {
  try {
    if (typeof flags === 'number' ? flags & 3 : /[wa+]/.test(typeof flags === 'string' ? flags : flags?.flag ?? flags?.flags ?? '')) return
    const at = resolve(path instanceof URL ? fileURLToPath(path) : String(path))
    if (!at.startsWith(start) || looked.size >= ABSENT || looked.has(at)) return
    looked.add(at)
    if (!existsSync(at)) note('absent', at.slice(start.length))
  } catch {}
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
const READS = ['readFile', 'open', 'stat', 'lstat', 'access', 'readdir', 'opendir']
for (const name of [...READS, ...READS.map((one) => one + 'Sync'), 'existsSync', 'createReadStream']) before(fs, name, absent)
for (const name of READS) before(fs.promises, name, absent)
const made = new Set()
const makes = ([path]) => {
  try {
    const at = resolve(path instanceof URL ? fileURLToPath(path) : String(path))
    if (made.size >= ABSENT || made.has(at)) return
    made.add(at)
    note('makes', at)
  } catch {}
}
for (const name of ['mkdir', 'mkdirSync']) before(fs, name, makes)
before(fs.promises, 'mkdir', makes)
before(process, 'loadEnvFile', ([path = '.env']) => dotEnv([path]))
before(net.Server.prototype, 'listen', ([at, ...rest]) => {
  const { port, path } = typeof at === 'object' && at !== null ? at : { port: at, path: typeof at === 'string' && isNaN(at) ? at : undefined }
  note(threads.isMainThread ? 'listens' : 'inThreads', path ?? port ?? 0)
})
before(dgram.Socket.prototype, 'bind', ([at]) => note('listens', 'udp ' + ((typeof at === 'object' ? at?.port : at) ?? 0)))
before(programs.ChildProcess.prototype, 'spawn', ([options]) => note('runs', options?.file))
for (const name of ['spawnSync', 'execFileSync', 'execSync']) before(programs, name, ([file]) => note('runs', String(file).split(' ')[0]))
for (const name of ['on', 'addListener', 'once']) before(process, name, ([event]) => event === 'SIGTERM' && threads.isMainThread && note('hears', event))
before(threads, 'Worker', () => note('threads', 1))
syncBuiltinESMExports()
`

/** `folder`: a temporary one, for the notes. `port`: the one that this start is given, which no install has. */
export function takeNotes(folder: string, port: number) {
  const path = join(folder, 'seen')
  const text = PRELOAD.replace('NOTES', JSON.stringify(path)).replaceAll('ABSENT', String(ABSENT_MAX))
  // a file, and no address with the text in it: what an application throws may name what called it
  const preload = (more: string) => {
    const file = join(folder, 'notes.mjs')
    writeFileSync(file, text + more)
    return pathToFileURL(file).href
  }
  return {
    /** for the command line of Node, before the program */
    nodeFlags: () => ['--import', preload('')],
    /** `NODE_OPTIONS` for a program whose command line cannot be changed; the application sees it as `own` */
    nodeOptions(own: string | undefined): string {
      const back =
        own === undefined ? 'delete process.env.NODE_OPTIONS' : `process.env.NODE_OPTIONS = ${JSON.stringify(own)}`
      return `${own ?? ''} --import=${preload(back)}`.trim()
    },
    read: async () => notedIn(await readFile(path, 'utf8').catch(() => ''), port),
  }
}

/** Pure. Skips what is not a note: the application can write to the file, too. */
export function notedIn(text: string, port: number): Noted {
  const notes = text.slice(0, NOTES_MAX_BYTES).split('\n').flatMap(noteIn)
  const all = (name: string, most = NAMES_MAX) =>
    [...new Set(notes.flatMap(([is, what]) => (is === name ? what : [])))].toSorted().slice(0, most)
  const given = new RegExp(`^(udp )?${port}$`)
  const places = (name: string) => all(name).map((one) => one.replace(given, '$1{port}'))
  return {
    listens: places('listens'),
    runs: all('runs').map((file) => basename(file)),
    threads: notes.filter(([is]) => is === 'threads').length,
    inThreads: places('inThreads'),
    absent: all('absent', ABSENT_MAX),
    makes: all('makes', ABSENT_MAX),
    hearsSigterm: all('hears').length > 0,
    dotEnv: all('dotEnv'),
  }
}

function noteIn(line: string): [string, string][] {
  const note = parsedJson(line)
  const [is, what] = Array.isArray(note) ? (note as unknown[]) : []
  return typeof is === 'string' && typeof what === 'string' ? [[is, what.replaceAll(/[\p{Cc}\p{Cf}]+/gu, ' ')]] : []
}
