// The clients of the soak of stop-first switches: fresh connections, keep-alive connections, rows that are written, and
// WebSockets whose numbers must come back. About 200 requests a second. What happens between two marks is told apart.
// Must hold: nothing is sent twice; what has no whole, right answer is lost.

import { setTimeout as sleep } from 'node:timers/promises'
import { ROW } from '../../fixtures/only-world.ts'
import { spawnLoad, type Totals } from '../../lab/load.ts'
import { WebSocket } from '../../lab/ws.ts'

/** What clients have seen between two marks. */
export interface Seen {
  requests: number
  /** requests on a connection of their own, and on one that is kept */
  lost: { fresh: number; kept: number }
  /** requests whose connection was refused */
  refused: number
  /** requests that were given up after HANG_MS */
  hung: number
  /** kept connections that the server ended: between two requests, in one, or with an announcement */
  closed: { idle: number; busy: number; announced: number }
  /** WebSockets: connections that were ended, and numbers that were lost with them, came twice, or in another order */
  sockets: { closed: number; refused: number; lost: number; wrong: number }
  /** the longest time that a client waited for an answer */
  longestMs: number
  errors: Record<string, number>
}

export interface Traffic {
  /** Tells what happened since the last mark, and sets one. */
  mark(): Promise<Seen>
  /** Ends it, and tells what happened since the last mark. `ids` of all rows that were acknowledged. */
  stop(): Promise<{ seen: Seen; ids: string[] }>
}

/** how many clients can have one request on its way */
export const CLIENTS = { fresh: 3, kept: 6, writing: 2, sockets: 6 } as const
const HANG_MS = 20_000
const EVERY_MS = 50
/** how long the last numbers may take to come back */
const BACK_MS = 5000

export async function startTraffic(port: number): Promise<Traffic> {
  const common = { port, hangMs: HANG_MS, keepAcknowledgedIds: true, maxMs: 3_600_000 } as const
  const seldom = { every: 10, path: ROW, body: '', method: 'POST' }
  const kept = { ...common, mode: 'keepalive', afterClose: 'reopen' } as const
  const loads = await Promise.all([
    spawnLoad({ ...common, mode: 'fresh', clients: CLIENTS.fresh, thinkMs: [15, 45], write: seldom }),
    spawnLoad({ ...kept, clients: CLIENTS.kept, thinkMs: [40, 80], write: seldom }),
    spawnLoad({ ...kept, clients: CLIENTS.writing, thinkMs: [80, 120], write: { ...seldom, every: 1 } }),
  ])
  const echoes = startEchoes(port)
  let [before, round] = [totalsOf([], echoes.seen()), 0]
  const since = (all: Totals[]): Seen => {
    const now = totalsOf(all, echoes.seen())
    const seen = minus(now, before)
    before = now
    seen.longestMs = Math.max(0, ...all.map(({ slices }) => slices[`${round}`]?.longestStallMs ?? 0))
    return seen
  }
  await Promise.all(loads.map((load) => load.mark(`${round}`)))
  return {
    async mark() {
      await Promise.all(loads.map((load) => load.mark(`${round + 1}`)))
      const seen = since(loads.map((load) => load.snapshot()))
      round++
      return seen
    },
    async stop() {
      await echoes.stop()
      const all = await Promise.all(loads.map((load) => load.stop()))
      return { seen: since(all), ids: all.flatMap(({ writes }) => writes.ids) }
    },
  }
}

function totalsOf(all: readonly Totals[], sockets: Seen['sockets']): Seen {
  const errors: Record<string, number> = {}
  for (const one of all)
    for (const [error, times] of Object.entries(one.errors)) errors[error] = (errors[error] ?? 0) + times
  const sum = (of: (total: Totals) => number, some = all) => some.reduce((total, one) => total + of(one), 0)
  const named = (pattern: RegExp) =>
    Object.entries(errors).reduce((total, [error, times]) => total + (pattern.test(error) ? times : 0), 0)
  return {
    requests: sum(({ requests }) => requests),
    lost: {
      fresh: sum(
        ({ lost }) => lost,
        all.filter(({ mode }) => mode === 'fresh'),
      ),
      kept: sum(
        ({ lost }) => lost,
        all.filter(({ mode }) => mode !== 'fresh'),
      ),
    },
    refused: sum(({ lostBy }) => lostBy.connect),
    hung: named(/hang/),
    closed: {
      idle: sum(({ closedBy }) => closedBy.idle),
      busy: sum(({ closedBy }) => closedBy.busy),
      announced: sum(({ closedBy }) => closedBy.announced),
    },
    sockets,
    longestMs: 0,
    errors,
  }
}

type Counts = { [key: string]: number | Counts }

/** Each number of `one` less the same number of `other`; what is 0 in `errors` is left out. */
function minus(one: Seen, other: Seen): Seen {
  const difference = (a: Counts, b: Counts): Counts =>
    Object.fromEntries(
      Object.entries(a).map(([key, value]) => {
        const less = b[key]
        if (typeof value === 'number') return [key, value - (typeof less === 'number' ? less : 0)]
        return [key, difference(value, typeof less === 'object' ? less : {})]
      }),
    )
  const seen = difference(one as unknown as Counts, other as unknown as Counts) as unknown as Seen
  seen.errors = Object.fromEntries(Object.entries(seen.errors).filter(([, times]) => times > 0))
  return seen
}

interface Echoes {
  seen(): Seen['sockets']
  /** Sends no more, waits for what has not come back, and closes. */
  stop(): Promise<void>
}

/** Each client sends its next number every EVERY_MS, whether the last has come back or not. */
function startEchoes(port: number): Echoes {
  const seen = { closed: 0, refused: 0, lost: 0, wrong: 0 }
  const clients = new Set<{ ws: WebSocket; waiting: number[] }>()
  let isStopping = false
  const open = (number: number): void => {
    if (isStopping) return
    const ws = new WebSocket(`ws://127.0.0.1:${port}/`, { perMessageDeflate: false })
    const client = { ws, waiting: [] as number[] }
    let [last, isOpen] = [number, false]
    clients.add(client)
    const timer = setInterval(() => {
      if (!isOpen || isStopping || ws.readyState !== WebSocket.OPEN) return
      client.waiting.push(++last)
      ws.send(String(last))
    }, EVERY_MS)
    ws.on('open', () => (isOpen = true))
    ws.on('error', () => {}) // `close` follows
    ws.on('message', (data: Buffer) => {
      if (Number(data.toString()) !== client.waiting.shift()) seen.wrong++
    })
    ws.on('close', () => {
      clearInterval(timer)
      clients.delete(client)
      if (!isStopping || client.waiting.length > 0) {
        if (isOpen) seen.closed++
        else seen.refused++
      }
      seen.lost += client.waiting.splice(0).length
      setTimeout(() => open(last), 20)
    })
  }
  for (let at = 0; at < CLIENTS.sockets; at++) open(0)
  return {
    seen: () => ({ ...seen }),
    async stop() {
      isStopping = true
      const waiting = () => [...clients].reduce((total, client) => total + client.waiting.length, 0)
      for (const until = performance.now() + BACK_MS; waiting() > 0 && performance.now() < until;) await sleep(10)
      seen.lost += waiting()
      for (const client of clients) {
        client.waiting.length = 0
        client.ws.terminate()
      }
    },
  }
}
