// The process that root has started as the service's user: it does what `Side` names, for root's process at the other end of its
// standard input and output. Must hold: it gives up what it has of root before it looks at anything, and it goes when root's
// process goes.

import type { Receipt } from '../../../agent/install.ts'
import { asBatonError } from '../../../agent/words.ts'
import { isRefusal } from '../../lib/refusal.ts'
import { makeSide, SIDE_NAMES } from '../service/side.ts'
import type { Outside } from '../service/outside.ts'
import { detachedWords } from '../supervisor/detached.ts'
import { systemdWords } from '../supervisor/systemd.ts'
import type { Supervisor, SupervisorState } from '../supervisor/supervisor.ts'
import { type WorkerChannel, type Handlers, makeChannel } from './channel.ts'
import { FEED_FD, stayDropped } from './drop.ts'
import { ownFile } from '../place/own.ts'

/** What root's process tells first. */
export interface Hello {
  /** setting of the feed whose folder root has opened for us; null where there is none */
  feedFolder: string | null
}

export async function work(inUnit: boolean): Promise<number> {
  stayDropped(inUnit)
  process.umask(0o022)
  let feedFolder: string | null = null
  const opened = `/proc/self/fd/${FEED_FD}`
  let channel: WorkerChannel | null = null
  const outside: Outside = {
    stage: (stage) => channel?.tell('stage', stage),
    bytes: (done, total) => channel?.tell('bytes', [done, total]),
    note: (line) => channel?.tell('note', line),
    supervisor: (receipt) => supervisorAcross(receipt, (name) => (channel as WorkerChannel).call(name, null)),
    feedAt: (setting) => (setting === feedFolder ? opened : setting),
  }
  const side = makeSide(outside, { path: ownFile() })
  const handlers: Record<string, Handlers[string]> = {
    hello: (told) => void (feedFolder = (told as Hello).feedFolder),
    ping: () => null,
  }
  for (const name of SIDE_NAMES) {
    const act = side[name] as (parameter: unknown) => Promise<unknown>
    handlers[name] = async (parameter) => {
      try {
        return await act(parameter)
      } catch (cause) {
        const error = asBatonError(cause, isRefusal(cause) ? 'refused' : 'unexpected', name)
        // nobody but us knows the folder by that name
        if (feedFolder !== null) error.message = error.message.replaceAll(opened, feedFolder)
        throw error
      }
    }
  }
  channel = makeChannel(process.stdin, process.stdout, handlers, { clean: false })
  await channel.closed
  await side.unlock()
  // an operation that goes on hears it, and ends before its swap or goes on to its end; everything else ends here
  process.kill(process.pid, 'SIGTERM')
  return 0
}

/** systemd is asked by root's process. */
function supervisorAcross(receipt: Receipt, call: (name: string) => Promise<unknown>): Supervisor {
  return {
    ...(receipt.supervisor === 'none' ? detachedWords(receipt) : systemdWords(receipt)),
    state: async () => (await call('state')) as SupervisorState,
    start: async () => void (await call('start')),
    stop: async () => void (await call('stop')),
  }
}
