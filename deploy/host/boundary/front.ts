// Root's end: starts the process that is the service's user, asks it for what is to be done in the service's places, and shows what
// it says. Must hold: nothing that comes from there is more than data; the only deeds it can ask for are to start and to stop the
// one unit that root's receipt names, and to tell its state.

import { once } from 'node:events'
import { closeSync, constants, openSync } from 'node:fs'
import { BatonError } from '../../../agent/words.ts'
import type { Outside } from '../service/outside.ts'
import { type Side, SIDE_NAMES } from '../service/side.ts'
import type { Identity } from '../place/identity.ts'
import { assertTrusted, trustIn } from '../place/trusted.ts'
import type { Supervisor } from '../supervisor/supervisor.ts'
import { makeChannel } from './channel.ts'
import { spawnDropped, WORKER } from './drop.ts'
import type { Hello } from './worker.ts'

export interface Front {
  side: Side
  close(): Promise<void>
}

export interface FrontOptions {
  /** the program to run: this very one */
  program: readonly [string, ...string[]]
  identity: Identity
  environment: Record<string, string>
  /** the setting of root's receipt, or of this command line */
  feed: string
  outside: Pick<Outside, 'stage' | 'bytes' | 'note'>
  /** of root's receipt; null before there is one, and where there is no systemd */
  supervisor: Supervisor | null
}

const STAGES: ReadonlySet<string> = new Set(['check', 'download', 'verify', 'swap', 'restart', 'start', 'health'])
const NOTE_MAX = 2000
const STDERR_MAX = 2000
const GRACE_MS = 5000

export async function openFront(options: FrontOptions): Promise<Front> {
  const { program, identity, environment, outside, supervisor } = options
  await assertTrusted(program[0], 'this program', 'run the command in /usr/local/bin, or `install.sh`')
  const feedFd = await openFeedFolder(options.feed)
  const child = spawnDropped([...program, WORKER], identity, environment, feedFd)
  if (feedFd !== null) closeSync(feedFd)
  let said = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said += text.slice(0, STDERR_MAX - said.length)))
  const ended = new Promise<void>((resolve) => void child.once('exit', () => resolve()))
  await once(child, 'spawn').catch((cause: unknown) => {
    throw new BatonError('refused', `starting ${program[0]} as user id ${identity.uid}`, { cause })
  })
  const ours = (act: (one: Supervisor) => Promise<unknown>) => async () => {
    if (supervisor === null) throw new BatonError('unexpected', 'there is no unit to ask about')
    return await act(supervisor)
  }
  const channel = makeChannel(
    child.stdout,
    child.stdin,
    {
      stage: (stage) => void (STAGES.has(String(stage)) && outside.stage(stage as Parameters<Outside['stage']>[0])),
      bytes: (both) => {
        const [done, total] = Array.isArray(both) ? both.map(Number) : []
        if (Number.isSafeInteger(done) && Number.isSafeInteger(total)) outside.bytes(done ?? 0, total ?? 0)
      },
      note: (line) => outside.note(String(line).slice(0, NOTE_MAX)),
      state: ours((one) => one.state()),
      start: ours((one) => one.start()),
      stop: ours((one) => one.stop()),
    },
    { clean: true },
  )
  const pass = (signal: NodeJS.Signals) => void child.kill(signal)
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, pass)
  const hello: Hello = { feedFolder: feedFd === null ? null : options.feed }
  await channel.call('hello', hello).catch((cause: unknown) => {
    throw new BatonError(
      'unexpected',
      `the process of the service's user did not come up: ${said.trim() || 'it said nothing'}`,
      {
        cause,
      },
    )
  })
  const side = Object.fromEntries(
    SIDE_NAMES.map((name) => [name, (parameter: unknown) => channel.call(name, parameter ?? null)]),
  ) as unknown as Side
  return {
    side,
    async close() {
      for (const signal of ['SIGINT', 'SIGTERM'] as const) process.off(signal, pass)
      child.stdin.end()
      const timer = setTimeout(() => child.kill('SIGKILL'), GRACE_MS)
      await ended
      clearTimeout(timer)
    },
  }
}

/** A folder that only root can reach, such as one in root's home: the unit shows it to the service in the same way. */
async function openFeedFolder(feed: string): Promise<number | null> {
  const path = feed.replace(/^file:\/\//, '')
  if (!path.startsWith('/')) return null
  const trust = await trustIn(path)
  if (!trust.trusted || trust.found?.isDirectory() !== true) return null
  return openSync(path, constants.O_RDONLY | constants.O_DIRECTORY)
}
