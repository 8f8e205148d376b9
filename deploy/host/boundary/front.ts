// Root's end: starts a worker as the service's user, asks it to act on the service's files, prints its progress.
// Must hold: root takes what the worker sends as data only, and only a bounded amount of it. The worker can ask root only to start
// or stop the one unit that root's receipt names, or for that unit's state. It cannot keep anybody from ending the command.

import { once } from 'node:events'
import { closeSync, constants, openSync } from 'node:fs'
import { BatonError, durationText, reasonOf } from '../../../agent/words.ts'
import { heedInterrupts } from '../service/interrupts.ts'
import { HOST_STAGES, type Outside } from '../service/outside.ts'
import type { Side } from '../service/side.ts'
import type { Identity } from '../place/identity.ts'
import { assertTrusted, trustIn } from '../../lib/trusted.ts'
import type { Supervisor } from '../supervisor/supervisor.ts'
import { type WorkerChannel, type Handlers, makeChannel } from './channel.ts'
import { type Sandbox, startConfined } from './confine.ts'
import { IN_UNIT, startDropped, type Worker, WORKER } from './drop.ts'
import type { Hello } from './worker.ts'

export interface Front {
  side: Side
  close(): Promise<void>
}

export interface FrontOptions {
  /** the program to run: this one again */
  program: readonly [string, ...string[]]
  identity: Identity
  environment: Record<string, string>
  /** the service's; null without systemd: then the worker has none */
  sandbox: Sandbox | null
  /** the feed of root's receipt, or of this command line */
  feed: string
  outside: Pick<Outside, 'stage' | 'bytes' | 'note'>
  /** of the service's unit; null without a unit */
  supervisor: Supervisor | null
  /** root kills the worker after this long */
  deadlineMs: number
}

const STAGES: ReadonlySet<string> = new Set(HOST_STAGES)
const NOTE_MAX = 2000
const STDERR_MAX = 2000
const GRACE_MS = 5000
/** how long the worker may take to answer a ping, once the operator wants to end the command */
const ANSWER_MS = 3000
/** limits for a whole command; an update needs some ten of each */
const NOTES_MAX = 200
const STAGES_MAX = 100
const ASKS_MAX = 200
const BYTES_EVERY_MS = 50
/** systemd could not set up the mounts that a sandbox needs */
const NAMESPACE = 226

export async function openFront(options: FrontOptions): Promise<Front> {
  await assertTrusted(options.program[0], 'this program', 'use the command in /usr/local/bin, or run `install.sh`')
  const { sandbox } = options
  if (sandbox === null) return await openDropped(options)
  let worker: Worker | null = null
  const open = async (withDropIns: boolean) => {
    const { identity, environment, deadlineMs } = options
    const program = [...options.program, WORKER, IN_UNIT]
    worker = await startConfined(program, identity, sandbox, environment, { deadlineMs, withDropIns })
    return await greet(worker, { feedFolder: null }, options)
  }
  // the operator's drop-ins may be the reason why the service does not start, and a command has to help then
  return await open(true).catch(async (cause: unknown) => {
    if (cause instanceof BatonError && cause.code === 'cancelled') throw cause
    const { service } = sandbox
    if (!isNotStarted(worker?.child.exitCode ?? null)) {
      const hint = `if one of the unit's drop-ins causes this, remove it; \`systemctl cat ${service}\` lists them`
      throw new BatonError('unexpected', reasonOf(cause), { cause, hint })
    }
    const front = await open(false).catch((again: unknown) => {
      const code = worker?.child.exitCode ?? null
      throw code === null || !isNotStarted(code) ? again : unitFault(code)
    })
    options.outside.note(`the drop-ins for ${service} stop this command from starting a process, so it ignores them`)
    return front
  })
}

/** Pure. Not even the unit as the installer wrote it starts: systemd.exec(5) names the codes. */
function unitFault(code: number): BatonError {
  const name = code === NAMESPACE ? '226/NAMESPACE' : String(code)
  return new BatonError(
    'unsupported_host',
    `systemd on this host cannot start a process with the unit’s restrictions (${name})`,
    {
      hint:
        code === NAMESPACE
          ? 'systemd cannot create namespaces here, as happens in an LXC container without nesting: enable nesting (`pct set ID --features nesting=1`), or install without a service (`--no-service`)'
          : 'for details, see `journalctl -u "baton-*"`; to install without systemd, use `--no-service`',
    },
  )
}

/**
 * Pure: whether systemd itself could not start the program, systemd.exec(5). An attacker in the service can kill the worker; that
 * must not get the next worker the weaker sandbox.
 */
export function isNotStarted(exitCode: number | null): boolean {
  return exitCode !== null && exitCode >= 200 && exitCode <= 243
}

async function openDropped(options: FrontOptions): Promise<Front> {
  const feedFd = await openFeedFolder(options.feed)
  try {
    const worker = startDropped([...options.program, WORKER], options.identity, options.environment, feedFd)
    return await greet(worker, { feedFolder: feedFd === null ? null : options.feed }, options)
  } finally {
    if (feedFd !== null) closeSync(feedFd)
  }
}

async function greet(worker: Worker, hello: Hello, options: FrontOptions): Promise<Front> {
  const { child } = worker
  let said = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said += text.slice(0, STDERR_MAX - said.length)))
  const ended = new Promise<void>((resolve) => void child.once('exit', () => resolve()))
  await once(child, 'spawn').catch((cause: unknown) => {
    throw new BatonError('refused', `cannot start ${options.program[0]} as user id ${options.identity.uid}`, { cause })
  })
  const channel = makeChannel(child.stdout, child.stdin, handlersFor(options), { clean: true, asksMax: ASKS_MAX })
  const ending = endable(worker, channel, options.deadlineMs)
  const call = async (name: string, parameter: unknown) => {
    try {
      return await channel.call(name, parameter)
    } catch (cause) {
      throw (cause === channel.gone() ? ending.why() : null) ?? cause
    }
  }
  let closed: Promise<void> | null = null
  const end = async () => {
    child.stdin.end()
    const timer = setTimeout(() => void worker.end(), GRACE_MS)
    await ended
    clearTimeout(timer)
    await worker.endRest()
    ending.off()
  }
  const close = () => (closed ??= end())
  try {
    await call('hello', hello)
  } catch (cause) {
    await close()
    if (cause instanceof BatonError && cause.code === 'cancelled') throw cause
    const what = `the service user's process did not start: ${said.trim() || 'it printed nothing'}`
    throw new BatonError('unexpected', what, { cause })
  }
  const side = new Proxy({} as Side, {
    // whoever awaits it would call `then`
    get: (_, name) => (name === 'then' ? undefined : (parameter: unknown) => call(String(name), parameter ?? null)),
  })
  return { side, close }
}

/** What the worker may send and ask for, each only so often. */
function handlersFor({ outside, supervisor }: FrontOptions): Handlers {
  const counts = new Map<string, number>()
  const isWithin = (what: string, max: number) => {
    const count = (counts.get(what) ?? 0) + 1
    counts.set(what, count)
    return count <= max
  }
  let drawnAt = -Infinity
  const ours = (act: (one: Supervisor) => Promise<unknown>) => async () => {
    if (supervisor === null) throw new BatonError('unexpected', 'this install has no systemd unit')
    return await act(supervisor)
  }
  return {
    stage: (both) => {
      const [stage, tookMs]: unknown[] = [both].flat()
      const took = typeof tookMs === 'number' && tookMs >= 0 ? tookMs : undefined
      if (STAGES.has(String(stage)) && isWithin('stage', STAGES_MAX)) outside.stage(stage as never, took)
    },
    bytes: (both) => {
      const [done, total] = Array.isArray(both) ? both.map(Number) : []
      const now = performance.now()
      if (!Number.isSafeInteger(done) || !Number.isSafeInteger(total)) return
      if (done !== total && now - drawnAt < BYTES_EVERY_MS) return
      if (done === total && !isWithin('bytes', STAGES_MAX)) return
      drawnAt = now
      outside.bytes(done ?? 0, total ?? 0)
    },
    note: (line) => {
      if (isWithin('note', NOTES_MAX)) outside.note(String(line).slice(0, NOTE_MAX))
      else if (counts.get('note') === NOTES_MAX + 1) outside.note('further notes are omitted')
    },
    state: ours((one) => one.state()),
    start: ours((one) => one.start()),
    stop: ours((one) => one.stop()),
  }
}

/**
 * Ctrl-C: passes the signal to the worker, whose operation ends in its own way, maybe only after a swap. Kills a worker that does
 * not answer the ping. Also kills it at the second signal, since an attacker in it could answer for ever, and at the deadline.
 */
function endable(worker: Worker, channel: WorkerChannel, deadlineMs: number) {
  let asked: NodeJS.Signals | null = null
  let isLate = false
  const pass = (signal: NodeJS.Signals) => {
    asked = signal
    const timer = setTimeout(() => void worker.end(), ANSWER_MS)
    const heard = async () => {
      clearTimeout(timer)
      await worker.signal(signal).catch(() => worker.end())
    }
    // signal it only after its answer: a worker that is still starting has no process yet that handles a signal
    void channel.call('ping', null).then(heard, () => clearTimeout(timer))
  }
  const interrupts = heedInterrupts(pass, () => void worker.end())
  const timer = setTimeout(() => {
    isLate = true
    void worker.end()
  }, deadlineMs)
  return {
    /** why this command ended the worker; null if it did not */
    why(): BatonError | null {
      if (asked !== null) return new BatonError('cancelled', `the command was stopped by ${asked}`)
      if (!isLate) return null
      return new BatonError('unexpected', `the command did not finish within ${durationText(deadlineMs)}`)
    },
    off() {
      clearTimeout(timer)
      interrupts[Symbol.dispose]()
    },
  }
}

/** Opens the feed's folder for a worker that cannot reach it, such as one in root's home. Null unless only root can change it. */
async function openFeedFolder(feed: string): Promise<number | null> {
  const path = pathOf(feed)
  return path !== null && (await isRoots(path)) ? openSync(path, constants.O_RDONLY | constants.O_DIRECTORY) : null
}

async function isRoots(path: string): Promise<boolean> {
  const trust = await trustIn(path)
  return trust.trusted && trust.found?.isDirectory() === true
}

function pathOf(feed: string): string | null {
  const path = feed.replace(/^file:\/\//, '')
  return path.startsWith('/') ? path : null
}
