// The worker: root started it as the service's user. It does what `Side` names, and talks to root's process over its standard
// input and output.
// Must hold: it gives up root's ids, groups and capabilities before it reads anything. When root's process ends, the worker ends too;
// an operation that has begun its swap finishes first.

import type { Receipt } from '../../../agent/install.ts'
import { asBatonError } from '../../../agent/words.ts'
import { isRefusal } from '../../lib/refusal.ts'
import { makeSide } from '../service/side.ts'
import type { Outside } from '../service/outside.ts'
import { detachedWords } from '../supervisor/detached.ts'
import { systemdWords } from '../supervisor/systemd.ts'
import type { Supervisor, SupervisorState } from '../supervisor/supervisor.ts'
import { type WorkerChannel, type Handlers, makeChannel } from './channel.ts'
import { FEED_FD, stayDropped } from './drop.ts'
import { ownFile } from '../place/own.ts'

/** The first message from root's process. */
export interface Hello {
  /** the feed setting whose folder root has opened for the worker; null if there is none */
  feedFolder: string | null
}

export async function work(inUnit: boolean): Promise<number> {
  stayDropped(inUnit)
  process.umask(0o022)
  let feedFolder: string | null = null
  const opened = `/proc/self/fd/${FEED_FD}`
  let channel: WorkerChannel | null = null
  const outside: Outside = {
    stage: (stage, tookMs) => channel?.tell('stage', [stage, tookMs ?? null]),
    bytes: (done, total) => channel?.tell('bytes', [done, total]),
    note: (line) => channel?.tell('note', line),
    supervisor: (receipt) => supervisorAcross(receipt, (name) => (channel as WorkerChannel).call(name, null)),
    feedAt: (choice) => ({ ...choice, feed: [choice.feed].flat().map((one) => (one === feedFolder ? opened : one)) }),
  }
  const side = makeSide(outside, { path: ownFile() })
  const handlers: Record<string, Handlers[string]> = {
    hello: (told) => void (feedFolder = (told as Hello).feedFolder),
    ping: () => null,
  }
  for (const [name, act] of Object.entries(side) as [string, (parameter: unknown) => Promise<unknown>][]) {
    handlers[name] = async (parameter) => {
      try {
        return await act(parameter)
      } catch (cause) {
        const error = asBatonError(cause, isRefusal(cause) ? 'refused' : 'unexpected', name)
        // only this process knows the folder by its descriptor
        if (feedFolder !== null) error.message = error.message.replaceAll(opened, feedFolder)
        throw error
      }
    }
  }
  channel = makeChannel(process.stdin, process.stdout, handlers, { clean: false })
  await channel.closed
  await side.unlock()
  // a running operation handles the signal: it cancels before its swap, and finishes after it; everything else ends here
  process.kill(process.pid, 'SIGTERM')
  return 0
}

/** Root's process asks systemd. */
function supervisorAcross(receipt: Receipt, call: (name: string) => Promise<unknown>): Supervisor {
  return {
    ...(receipt.supervisor === 'none' ? detachedWords(receipt) : systemdWords(receipt)),
    state: async () => (await call('state')) as SupervisorState,
    start: async () => void (await call('start')),
    stop: async () => void (await call('stop')),
  }
}
