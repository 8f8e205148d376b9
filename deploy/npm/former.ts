// Finds what runs a package on this host already: a unit, pm2, or a global install. Must hold: it only looks. The former service stays
// installed, and can be started again.

import { readdir, readFile, realpath } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { BatonError } from '../../agent/words.ts'
import { findProgram, run } from '../lib/shell.ts'
import { systemctlFor, unitFolderFor } from '../lib/systemctl.ts'

export interface Former {
  /** for a person: `the unit node-red.service` */
  what: string
  /** home of the user that it runs as */
  home: string
  /** commands that stop it, and keep it stopped after a boot; none: nobody knows what runs it, so it is not stopped */
  stop: string[][]
  /** the command by which it comes back; null: nothing was stopped */
  back: string | null
}

/** How it comes back, for a person. */
export function wayBack({ back }: Former): string {
  return back === null ? 'start it the way you did before' : `run \`${back}\``
}

/** Null: nothing here runs it. */
export async function findFormer(name: string, isRoot: boolean): Promise<Former | null> {
  return (await unitOf(name, isRoot)) ?? (await pm2Of(name)) ?? (await globalOf(name))
}

async function unitOf(name: string, isRoot: boolean): Promise<Former | null> {
  const scope = isRoot ? 'system' : 'user'
  const folder = unitFolderFor(scope, { home: homedir(), environment: process.env })
  for (const file of (await readdir(folder).catch(() => [])).toSorted()) {
    if (!file.endsWith('.service')) continue
    const text = await readFile(join(folder, file), 'utf8').catch(() => '')
    const started = [...text.matchAll(/^ExecStart=[-@:+!]*(.*)$/gm)].flatMap(([, line = '']) =>
      line.trim().split(/\s+/),
    )
    const inside = await Promise.all(started.map((word) => isIn(word, name)))
    if (!inside.includes(true)) continue
    const user = /^User=(.+)$/m.exec(text)?.[1]?.trim()
    const systemctl = systemctlFor(scope)
    return {
      what: `the unit ${file}`,
      home: user === undefined ? homedir() : await homeOf(user),
      stop: [[...systemctl, 'disable', '--now', file]],
      back: [...systemctl, 'enable', '--now', file].join(' '),
    }
  }
  return null
}

async function pm2Of(name: string): Promise<Former | null> {
  const text = await readFile(join(process.env['PM2_HOME'] ?? join(homedir(), '.pm2'), 'dump.pm2'), 'utf8').catch(
    () => '[]',
  )
  for (const one of JSON.parse(text) as { name?: string; pm_exec_path?: string }[]) {
    if (one.name === undefined || !(await isIn(one.pm_exec_path ?? '', name))) continue
    const stop = [
      ['pm2', 'stop', one.name],
      ['pm2', 'save'],
    ]
    return { what: `${one.name} of pm2`, home: homedir(), stop, back: `pm2 start ${one.name} && pm2 save` }
  }
  return null
}

async function globalOf(name: string): Promise<Former | null> {
  for (const root of ['/usr/lib/node_modules', '/usr/local/lib/node_modules'])
    if ((await readdir(join(root, name)).catch(() => null)) !== null)
      return {
        what: `the global install in ${join(root, name)}`,
        home: homedir(),
        stop: [],
        back: null,
      }
  return null
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
    throw new BatonError('refused', `expected the user ${user} of the unit on this host, found none`)
  return home
}

/** Where its data are: as it was typed, else where its recipe says that its own installs have them. */
export function dataOf(former: Former, recipe: { formerData: string | null } | null, typed: string | null): string {
  const known = recipe?.formerData ?? null
  if (typed !== null) return typed
  if (known !== null) return known.replace(/^~(?=\/|$)/, former.home)
  throw new BatonError('invalid_request', `nothing says where ${former.what} has its data`, {
    hint: '`--data DIR` does',
  })
}
