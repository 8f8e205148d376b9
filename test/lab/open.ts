// Clients with a WebSocket or a stream of events open all the time, as pages in browsers have: each opens another one when its own has
// ended. Counts how each ended: a WebSocket by its close code, a stream between two events, inside of one, or reset.

import { get } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { answer } from './remote.ts'
import { WebSocket } from './ws.ts'

export interface OpenOptions {
  host: string
  port: number
  /** so many of each kind */
  each: number
}

export interface OpenReport {
  /** WebSockets that ended, by close code */
  codes: Record<string, number>
  streams: { between: number; inside: number; reset: number }
}

export interface OpenClients {
  report(): OpenReport
}

/** the live tail of the reference service's logs */
const PATHS = { websocket: '/api/logs/live', stream: '/api/logs/events' }
const AGAIN_MS = 200
const OPEN_MAX_MS = 20_000

/** Resolves when all are open. */
export async function startOpen({ host, port, each }: OpenOptions): Promise<OpenClients> {
  const report: OpenReport = { codes: {}, streams: { between: 0, inside: 0, reset: 0 } }
  const keep = (open: (opened: () => void) => Promise<void>) =>
    new Promise<void>((resolve) => {
      const again = async (): Promise<never> => {
        for (;;) {
          await open(resolve)
          await sleep(AGAIN_MS)
        }
      }
      void again()
    })
  const webSocket = (opened: () => void) => followWebSocket(`ws://${host}:${port}${PATHS.websocket}`, opened, report)
  const stream = (opened: () => void) => followStream(`http://${host}:${port}${PATHS.stream}`, opened, report)
  const all = Promise.all(Array.from({ length: each }, () => [keep(webSocket), keep(stream)]).flat())
  const late = sleep(OPEN_MAX_MS).then(() =>
    Promise.reject(new Error(`expected all to be open within ${OPEN_MAX_MS} ms`)),
  )
  late.catch(() => {}) // they are
  await Promise.race([all, late])
  return { report: () => report }
}

function followWebSocket(url: string, opened: () => void, { codes }: OpenReport): Promise<void> {
  return new Promise((resolve) => {
    const ws = new WebSocket(url, { perMessageDeflate: false })
    let isOpen = false
    ws.on('open', () => {
      isOpen = true
      opened()
    })
    ws.on('error', () => {}) // `close` follows
    ws.on('close', (code: number) => {
      if (isOpen) codes[code] = (codes[code] ?? 0) + 1
      resolve()
    })
  })
}

function followStream(url: string, opened: () => void, { streams }: OpenReport): Promise<void> {
  return new Promise((resolve) => {
    const request = get(url, { agent: false }, (response) => {
      opened()
      let last = ''
      let isReset = false
      response.setEncoding('utf8').on('data', (part: string) => (last = (last + part).slice(-2)))
      // one that ends short, as it must, is said to be aborted, though the server has ended it properly
      response.on('error', () => {})
      response.socket.on('error', () => (isReset = true))
      response.on('close', () => {
        if (isReset) streams.reset++
        else if (last === '' || last === '\n\n') streams.between++
        else streams.inside++
        resolve()
      })
    })
    request.on('error', () => resolve()) // no answer
  })
}

answer(import.meta.url, startOpen)
