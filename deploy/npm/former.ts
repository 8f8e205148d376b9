// Finds what runs a package on this host already: a unit, pm2, a process that somebody has started, or a global install. Must hold: it
// only looks. The former service stays installed, and can be started again.

import { existsSync } from 'node:fs'
import { readdir, readFile, readlink, realpath, stat } from 'node:fs/promises'
import { homedir } from 'node:os'
import { basename, dirname, join, resolve } from 'node:path'
import { BatonError, formatNames, parsedJson } from '../../agent/words.ts'
import { recordOf } from '../lib/agent-answer.ts'
import { openFilesBelow } from '../lib/open-files.ts'
import { readProc } from '../lib/proc.ts'
import { findProgram, formatCommand, run } from '../lib/shell.ts'
import { systemctlFor, unitFolderFor } from '../lib/systemctl.ts'

export interface Former {
  /** for a person: `the unit node-red.service` */
  what: string
  /** home of the user that it runs as */
  home: string
  /** commands that stop it, and keep it stopped after a boot; none: nothing runs */
  stop: string[][]
  /** commands by which it comes back; none: nobody knows how it was started */
  start: string[][]
}

/** ends processes and waits for that */
const END =
  'kill "$@"; for p; do n=0; while kill -0 "$p" 2>/dev/null; do n=$((n+1)); [ $n -lt 300 ] || exit 1; sleep 0.1; done; done'

/** How it comes back, for a person. */
export function wayBack({ start }: Former): string {
  return start.length === 0
    ? 'start the original program the way you did before'
    : `run \`${start.map(formatCommand).join(' && ')}\``
}

export async function findFormer(name: string, isRoot: boolean): Promise<Former | null> {
  return (await unitOf(name, isRoot)) ?? (await pm2Of(name)) ?? (await processOf(name)) ?? globalOf(name)
}

async function unitOf(name: string, isRoot: boolean): Promise<Former | null> {
  const scope = isRoot ? 'system' : 'user'
  const own = unitFolderFor(scope, { home: homedir(), environment: process.env })
  const folders = [own, ...['/usr/local/lib/systemd', '/usr/lib/systemd'].map((one) => join(one, scope))]
  for (const folder of folders)
    for (const file of (await readdir(folder).catch(() => [])).toSorted()) {
      if (!file.endsWith('.service')) continue
      const text = (await readFile(join(folder, file), 'utf8').catch(() => '')).replaceAll(/\\\n/g, ' ')
      const started = [...text.matchAll(/^ExecStart=[-@:+!]*(.*)$/gm)].flatMap(([, line = '']) => programsIn(line))
      if (!(await isAny(started, name))) continue
      const user = /^User=(.+)$/m.exec(text)?.[1]?.trim()
      const systemctl = systemctlFor(scope)
      return {
        what: `the unit ${file}`,
        home: user === undefined ? homedir() : await homeOf(user),
        stop: [[...systemctl, 'disable', '--now', file]],
        start: [[...systemctl, 'enable', '--now', file]],
      }
    }
  return null
}

async function pm2Of(name: string): Promise<Former | null> {
  const home = process.env['PM2_HOME'] ?? join(homedir(), '.pm2')
  const pid = (await readFile(join(home, 'pm2.pid'), 'utf8').catch(() => '')).trim()
  const isUp = /^\d+$/.test(pid) && existsSync(`/proc/${pid}`)
  const text = isUp
    ? (await run(['pm2', 'jlist'])).stdout.split('\n').findLast((line) => line.startsWith('[{')) // it talks before
    : await readFile(join(home, 'dump.pm2'), 'utf8').catch(() => '')
  const all = parsedJson(text ?? '')
  for (const one of Array.isArray(all) ? all.map(recordOf) : []) {
    const {
      name: called,
      pm_exec_path: path,
      args,
    } = { ...one, ...recordOf(one['pm2_env']) } as Record<string, unknown>
    const words = [path, ...[args].flat()].filter((word) => typeof word === 'string')
    if (typeof called !== 'string' || !(await isAny(programsIn(words.join(' ')), name))) continue
    return {
      what: `the pm2 app ${called}`,
      home: homedir(),
      stop: [...(isUp ? [] : [['pm2', 'resurrect']]), ['pm2', 'stop', called], ['pm2', 'save']],
      start: [
        ['pm2', 'start', called],
        ['pm2', 'save'],
      ],
    }
  }
  return null
}

async function processOf(name: string): Promise<Former | null> {
  const pids = await pidsOf(name)
  const [first] = pids
  if (first === undefined) return null
  const environment = await readProc(`/proc/${first}/environ`)
  const home = environment.split('\0').find((one) => one.startsWith('HOME=/'))
  return {
    what: `the process ${pids.join(', ')}`,
    home: home?.slice('HOME='.length) ?? homedir(),
    stop: [['/bin/sh', '-c', END, 'sh', ...pids]],
    start: [],
  }
}

function globalOf(name: string): Former | null {
  const prefixes = [
    process.env['npm_config_prefix'],
    ...(process.env['PATH'] ?? '').split(':').map(dirname),
    '/usr',
    '/usr/local',
  ]
  const found = prefixes
    .map((prefix) => join(prefix ?? '/', 'lib/node_modules', name))
    .find((folder) => existsSync(join(folder, 'package.json')))
  return found === undefined ? null : { what: `the global install in ${found}`, home: homedir(), stop: [], start: [] }
}

/** Processes of this host, not of a container, that this user may end. */
async function pidsOf(name: string): Promise<string[]> {
  const all = (await readdir('/proc')).filter((pid) => /^\d+$/.test(pid) && Number(pid) !== process.pid)
  const own = await stat('/')
  const found: string[] = []
  for (const pid of all)
    try {
      const [program = '', ...words] = (await readFile(`/proc/${pid}/cmdline`, 'utf8')).split('\0')
      const script = words.find((word) => !word.startsWith('-'))
      const isNode = /^node(js)?$/.test(basename(program)) && script !== undefined
      const started = isNode ? resolve(await readlink(`/proc/${pid}/cwd`), script) : program.split(' ')[0]
      if (!(await isIn(started ?? '', name))) continue
      const { dev, ino } = await stat(`/proc/${pid}/root/`)
      if (dev === own.dev && ino === own.ino) found.push(pid)
    } catch {
      continue // it has ended, or is another user's
    }
  return found
}

/** what starts the program that is named behind it */
const STARTER = /^(.*\/)?(env|exec|nice|ionice|nohup|setsid|sudo|runuser|sh|bash|dash|npx|npm|node|nodejs)$/

/** Words of a command line that may be what it starts: paths, and a name only where a program stands. `vite serve` starts no `serve`. Pure. */
export function programsIn(line: string): string[] {
  return line.split(/["';&|]+/).flatMap((part) => {
    const words = part.split(/\s+/).filter(Boolean)
    const isBefore = (word: string, before = '') =>
      STARTER.test(word) || /^(-|\d+$|\w+=)/.test(word) || /^-[gu]$/.test(before)
    const at = words.findIndex((word, index) => !isBefore(word, words[index - 1]))
    return words.filter((word, index) => word.includes('/') || index === at)
  })
}

async function isAny(words: readonly string[], name: string): Promise<boolean> {
  for (const word of words) if (await isIn(word, name)) return true
  return false
}

/** Whether a word of a command line is a file of the package, or a link or a name on PATH that leads to one. */
async function isIn(word: string, name: string): Promise<boolean> {
  const inside = `/node_modules/${name}/`
  if (word.includes(inside)) return true
  if (!/^[\w@./-]+$/.test(word) || word.startsWith('-')) return false
  const path = word.startsWith('/') ? word : await findProgram(word)
  return path !== null && (await realpath(path).catch(() => '')).includes(inside)
}

async function homeOf(user: string): Promise<string> {
  const { stdout } = await run(['getent', 'passwd', user], { allowFailure: true })
  const home = stdout.split(':')[5]
  if (home === undefined)
    throw new BatonError('refused', `the unit runs as user ${user}, but this host has no such user`)
  return home
}

/** Where its data are: as it was typed, else where its recipe says that its own installs have them. Throws BatonError invalid_request. */
export async function dataOf(
  { what, home }: Former,
  {
    package: name,
    recipe,
    typed,
  }: { package: string; recipe: { formerData: string | null } | null; typed: string | null },
): Promise<string> {
  const known = recipe?.formerData ?? null
  const data = typed ?? known?.replace(/^~(?=\/|$)/, home)
  if (data !== undefined) {
    if ((await stat(data).catch(() => null))?.isDirectory() === true) return data
    throw new BatonError('invalid_request', `there is no folder ${data}, where the data of ${what} was expected`, {
      hint: 'name another folder with `--data DIR`',
    })
  }
  const seen = await placesOf(await pidsOf(name))
  throw new BatonError('invalid_request', `cannot tell where ${what} keeps its data`, {
    hint: `specify the data folder with \`--data DIR\`${seen.length === 0 ? '' : `; the running processes use ${formatNames(seen, 4)}`}`,
  })
}

/** Working folders of processes, and of the files that they and what they have started have open. */
async function placesOf(pids: readonly string[]): Promise<string[]> {
  const links = async (pid: string) => {
    const open = await openFilesBelow(Number(pid))
    return [await readlink(`/proc/${pid}/cwd`).catch(() => ''), ...open.map(({ target }) => dirname(target))]
  }
  const all = new Set((await Promise.all(pids.map(links))).flat())
  return [...all].filter(
    (path) => !/^(\/|\.|(\/(dev|proc|sys|tmp|usr|run|var\/log)|.*\/node_modules)(\/.*)?)?$/.test(path),
  )
}
