// Asks an executable what it is by running it with `--version`: the only way to know that it runs at all.
// Must hold: its run time and its output are bounded; its environment holds none of this process's secrets; a chain of
// executables that start each other ends (BATON_DEPTH).

import { open, stat } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { DEPTH, WIRES_ORDER } from '../disk/orders.ts'
import { type Ran, runBounded } from '../sockets/bounded.ts'
import { blameless, hindranceOf } from '../words/blame.ts'
import { BatonError, codeOf, reasonOf } from '../words/errors.ts'
import { isTag } from '../words/release.ts'
import type { Tag } from '../words/release.ts'
import { isCount, parsedJson, quoted, quotedUpTo } from '../words/untrusted.ts'
import { afterPrinting } from '../words/wrote.ts'

export interface RunOptions {
  /** for the answer; default VERSION_TIMEOUT_MS */
  timeoutMs?: number
  /** also asks the executable to prepare for its start: one that unpacks itself does so now, any other ignores it */
  prepare?: boolean
  /** on abort the executable is killed and the promise rejects with the signal's reason */
  signal?: AbortSignal | undefined
}

export const VERSION_TIMEOUT_MS = 10_000
/** enough to unpack some ten thousand files on a slow disk */
const PREPARE_TIMEOUT_MS = 300_000
/** how long a chain of executables that run each other may be */
export const DEPTH_MAX = 3
const OUTPUT_MAX_BYTES = 4 * 1024
/** enough for the places in which it found no room to unpack */
const SAID_MAX_CHARS = 800
const [WIRES_MAX, WIRES_MAX_BYTES] = [32, 1024]
/** a child that this process forks at that moment may hold the file open for writing until its exec: golang/go#22315 */
const BUSY_TRIES = 10
/** shortages of a host, which say nothing about the executable */
const SHORTAGES = ['EMFILE', 'ENFILE', 'ENOMEM', 'EAGAIN', 'ENOSPC', 'EIO']
const BUSY_WAIT_MS = 50
const KEPT_MAX = 8

interface Said {
  service: string
  tag: Tag
  /** the versions of a switch's messages that the release speaks; null: it does not say, as it is older than that */
  wires: number[] | null
}

/** What `path` prints: `<service> v1.1.0`, and beside it its wires. Throws verify_failed; refused if this host cannot start it. */
export async function runVersion(path: string, options: RunOptions = {}): Promise<Said> {
  const depth = Number(process.env[DEPTH] ?? 0)
  if (!(depth < DEPTH_MAX))
    throw failed(path, `too many nested executables, each starting the next (${depth + 1} levels)`)
  await rightFormat(path)
  const variables = environment(depth + 1, options.prepare === true)
  const timeoutMs = options.timeoutMs ?? (options.prepare === true ? PREPARE_TIMEOUT_MS : VERSION_TIMEOUT_MS)
  const ended = await runPatiently(path, variables, timeoutMs, options.signal)
  const said = afterPrinting(ended.said === '' ? null : quotedUpTo(SAID_MAX_CHARS, ended.said.trim()))
  if (ended.signal !== null)
    throw failedOrHindered(path, `it was killed by ${ended.signal}`, said, 'the file may be damaged')
  if (ended.code !== 0) throw failedOrHindered(path, `expected exit code 0, got ${ended.code}`, said)
  const [, service, tag] = /^([a-z][a-z0-9-]*) (v[0-9A-Za-z.-]+)\r?\n$/.exec(ended.answer) ?? []
  if (service === undefined || !isTag(tag)) {
    throw failed(path, `expected \`<service> vX.Y.Z\`, got ${quoted(ended.answer)}`)
  }
  const wires = parsedJson(ended.beside)
  return { service, tag, wires: Array.isArray(wires) ? wires.filter(isCount).slice(0, WIRES_MAX) : null }
}

/** Runs it. Throws as `runVersion` does, and verify_failed if `path` is another service or has another tag. */
export async function expectTag(path: string, service: string, tag: Tag, options: RunOptions = {}): Promise<void> {
  const got = await keep(await keyOf(path), runVersion(path, options))
  if (got.service !== service) throw failed(path, `expected the service \`${service}\`, got \`${got.service}\``)
  if (got.tag !== tag) throw failed(path, `expected ${tag}, got ${got.tag}`)
}

/** What the executable at `path` says. Runs a file only once, as long as it does not change. Throws as `runVersion` does. */
export async function installed(path: string): Promise<Said> {
  const key = await keyOf(path)
  return await (kept.get(key) ?? keep(key, runVersion(path)))
}

export async function installedTag(path: string): Promise<Tag> {
  return (await installed(path)).tag
}

async function keyOf(path: string): Promise<string> {
  const { dev, ino, size, mtimeNs } = await stat(path, { bigint: true }).catch((error: unknown) => {
    throw failed(path, reasonOf(error))
  })
  return `${dev}-${ino}-${size}-${mtimeNs}`
}

const kept = new Map<string, Promise<Said>>()

function keep(key: string, asked: Promise<Said>): Promise<Said> {
  kept.delete(key)
  kept.set(key, asked)
  for (const oldest of kept.keys()) if (kept.size > KEPT_MAX) kept.delete(oldest)
  asked.catch(() => kept.delete(key)) // the trouble may have passed by the next call
  return asked
}

async function runPatiently(
  path: string,
  variables: NodeJS.ProcessEnv,
  timeoutMs: number,
  signal: AbortSignal | undefined,
): Promise<Ran> {
  for (let tries = 1; ; tries++) {
    try {
      return await runOnce(path, variables, timeoutMs, signal)
    } catch (error) {
      if (error instanceof BatonError) throw error
      const code = codeOf(error)
      if (code === 'ETXTBSY' && tries < BUSY_TRIES) await sleep(BUSY_WAIT_MS)
      else if (code === 'EACCES')
        throw failed(path, 'it is not executable', 'check whether its directory is mounted `noexec`')
      else if (code === 'ENOEXEC')
        throw failed(path, 'exec format error: it was built for another platform, or is damaged')
      else if (code === 'ENOENT') throw failed(path, 'its interpreter or loader is not on this host')
      else if (SHORTAGES.includes(code)) {
        const message = `this host could not run \`${path} --version\`: ${reasonOf(error)}`
        throw new BatonError('refused', message, { cause: error })
      } else throw failed(path, reasonOf(error))
    }
  }
}

async function runOnce(
  path: string,
  variables: NodeJS.ProcessEnv,
  timeoutMs: number,
  signal: AbortSignal | undefined,
): Promise<Ran> {
  const ran = await runBounded([path, '--version'], {
    cwd: '/',
    env: variables,
    timeMs: timeoutMs,
    answer: { fd: 1, max: OUTPUT_MAX_BYTES },
    besideMax: WIRES_MAX_BYTES,
    said: { first: OUTPUT_MAX_BYTES },
    signal,
    // root runs only its own executables, and sends no signals to what they have left behind
    group: process.getuid?.() === 0 ? 'own, left' : 'own',
  })
  if (ran.stopped === 'called off') throw signal?.reason as Error
  if (ran.stopped === 'late') throw failed(path, `it did not respond within ${timeoutMs / 1000} s`)
  if (ran.stopped === 'too much') throw failed(path, 'expected one line of output, got much more')
  return ran
}

/** Only what the executable needs to find its interpreter and libraries; no secrets. */
function environment(depth: number, prepare: boolean): NodeJS.ProcessEnv {
  const variables: NodeJS.ProcessEnv = { LC_ALL: 'C', [DEPTH]: String(depth), [WIRES_ORDER]: '1' }
  // BATON_NODE is the Node that runs a script; `places` say where an executable may unpack itself when it starts
  const places = prepare ? ['STATE_DIRECTORY', 'XDG_CACHE_HOME', 'HOME'] : []
  for (const name of ['LD_LIBRARY_PATH', 'BATON_NODE', ...places]) {
    if (process.env[name] !== undefined) variables[name] = process.env[name]
  }
  if (prepare) variables['BATON_PREPARE'] = '1'
  return { ...variables, PATH: process.env['PATH'] ?? '/usr/local/bin:/usr/bin:/bin' }
}

const ELF_MACHINES: Record<number, string> = { 0x03: 'ia32', 0x28: 'arm', 0x3e: 'x64', 0xb7: 'arm64', 0xf3: 'riscv64' }

/**
 * Checks the first bytes before running anything. If the kernel says ENOEXEC, execvp(3), which libuv uses, hands the file to
 * /bin/sh: a shell would then run a foreign executable as a script.
 */
async function rightFormat(path: string): Promise<void> {
  const start = Buffer.alloc(20)
  try {
    await using file = await open(path)
    const { bytesRead } = await file.read(start, 0, start.length, 0)
    if (bytesRead === 0) throw failed(path, 'the file is empty')
  } catch (error) {
    throw error instanceof BatonError ? error : failed(path, reasonOf(error))
  }
  if (start.toString('latin1', 0, 2) === '#!') return
  const elf = start.readUInt32BE(0) === 0x7f454c46
  if (elf && process.platform !== 'linux') throw failed(path, 'exec format error: it was built for Linux')
  if (elf) {
    const machine = start[5] === 2 ? start.readUInt16BE(18) : start.readUInt16LE(18)
    const built = ELF_MACHINES[machine] ?? `machine type ${machine}`
    if (built !== process.arch)
      throw failed(path, `exec format error: it was built for ${built}, expected ${process.arch}`)
    return
  }
  if (process.platform === 'linux') {
    const mach = [0xcffaedfe, 0xcafebabe].includes(start.readUInt32BE(0))
    const built = mach ? 'macOS' : start.toString('latin1', 0, 2) === 'MZ' ? 'Windows' : null
    const why = built === null ? 'it is not an executable for this platform' : `it was built for ${built}`
    throw failed(path, `exec format error: ${why}`)
  }
}

/** This host may lack what it needs to unpack itself, for instance. */
function failedOrHindered(path: string, how: string, said: string, hint?: string): BatonError {
  const hindrance = hindranceOf({ how, said })
  if (hindrance === null) return failed(path, `${how}${said}`, hint)
  return blameless('refused', `running \`${path} --version\`: ${how}${said}; ${hindrance}`)
}

function failed(path: string, why: string, hint?: string): BatonError {
  return new BatonError('verify_failed', `running \`${path} --version\`: ${why}`, hint === undefined ? {} : { hint })
}
