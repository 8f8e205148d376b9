// The holder of a stop-first switch: a process of the old executable that never loads the application. It keeps the listening sockets and
// the connections while no process of the application lives, and conducts the switch (`stop-first.ts`).
// Must hold: if this process dies, at any moment, the successor goes on.

import { Socket } from 'node:net'
import { makeDisk } from '../../disk/disk.ts'
import { makeJournal } from '../../disk/journal.ts'
import { closeDescriptor, keepFromChildren } from '../../sockets/libc.ts'
import { adoptOrphans } from '../../sockets/libc-later.ts'
import { packetsOn } from '../../sockets/packets.ts'
import type { HandoverReport } from '../../words/state.ts'
import { NO_HANDOVER } from '../../words/report.ts'
import { type FromHolder, type Holding, HOLDING, type ToHolder } from '../../words/wire.ts'
import { channelOver } from '../channel.ts'
import { conduct } from '../conduct.ts'
import { ALIVE_EVERY_MS } from '../heartbeat.ts'
import { took } from '../moments.ts'
import { type Hold, warn } from './hold.ts'
import { makePassing } from './passing.ts'
import { stopFirst } from './stop-first.ts'

/** how long clients that are slow, or whose host is busy, may take to read why their connection ends */
const ENDING_MS = 2000

/** Resolves to the exit code. */
export async function hold(): Promise<number> {
  const holding = JSON.parse(process.env[HOLDING] ?? '') as Holding
  delete process.env[HOLDING]
  const { channel, listeners } = holding
  const inherited = [channel.messages, channel.packets, ...listeners.map(({ spare }) => spare), holding.values ?? null]
  for (const fd of inherited) if (fd !== null) keepFromChildren(fd)
  const socket = new Socket({ fd: channel.messages, readable: true, writable: true })
  const up = channelOver<FromHolder, ToHolder>(socket, packetsOn(channel.packets))
  const report: HandoverReport = { ...NO_HANDOVER }
  const own: Hold = {
    holding,
    places: listeners,
    up,
    passing: makePassing(report, up.tell),
    report,
    journal: makeJournal(makeDisk(), holding.stateDirectory, warn),
    left: null,
    children: holding.children,
    pausedAt: null,
    silentSince: null,
    stop: new AbortController(),
  }
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => own.stop.abort(signal))
  process.on('SIGHUP', () => {})
  adoptOrphans() // so that it finds every process that a new release has started, even if that process's parent has ended
  hear(own)
  took('held')
  await using ground = stopFirst(own)
  return await conduct(ground)
}

function hear(own: Hold): void {
  const { up, passing, stop } = own
  const alive = setInterval(() => void up.tell({ type: 'alive' }), ALIVE_EVERY_MS)
  void up.closed.then(() => clearInterval(alive))
  up.hear((message, descriptors) => {
    switch (message.type) {
      case 'pause':
        own.pausedAt = performance.now()
        return
      case 'resume':
        own.pausedAt = null
        return passing.forget()
      case 'drop':
        return stop.abort('drop')
      case 'leaving':
        own.left = message
        own.children = message.children
        own.pausedAt = performance.now() - message.pausedMs
        return
      case 'alive':
        return
      case 'ending':
        setTimeout(() => descriptors?.forEach(closeDescriptor), ENDING_MS)
        return
      case 'connections':
      case 'carry':
      case 'late':
      case 'spoilt':
        return passing.take(message, descriptors)
      default:
        return message satisfies never
    }
  })
}
