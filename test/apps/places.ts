// What is asked of an adopted application at every place, and what is seen there.

import { type LoadOptions, spawnLoad } from '../lab/load.ts'

export const PATHS = ['/healthz', '/work', '/hello.txt'] as const

export const PLACES = ['systemd', 'image'] as const

/** What was seen at one place. */
export interface Place {
  requests: number
  lost: number
  closed: number
  outcomes: string[]
  /** `path -> status` of everything that was asked */
  answers: Record<string, number>
}

/** WebSockets that are there all the time, where the application has `/ws` */
export const SOCKETS = 6

export interface Loaded {
  port: number
  sockets: boolean
  /** what to put before a command that makes the load */
  prefix?: string[]
}

/** Clients that never retry, of every kind that these applications have; resolves once they are under way. */
export async function startLoads({ port, sockets, prefix = [] }: Loaded) {
  const kinds: Pick<LoadOptions, 'mode' | 'clients' | 'path' | 'thinkMs'>[] = [
    { mode: 'keepalive', clients: 12, path: '/hello.txt', thinkMs: [5, 40] },
    { mode: 'keepalive', clients: 4, path: '/work', thinkMs: [20, 80] },
    { mode: 'fresh', clients: 4, path: '/healthz', thinkMs: [10, 50] },
  ]
  if (sockets) kinds.push({ mode: 'websocket', clients: SOCKETS, path: '/ws', thinkMs: [10, 40] })
  const loads = await Promise.all(kinds.map((kind) => spawnLoad({ ...kind, port, afterClose: 'end' }, { prefix })))
  return {
    async stop(): Promise<Pick<Place, 'requests' | 'lost' | 'closed'>> {
      const totals = await Promise.all(loads.map((load) => load.stop()))
      const sum = (key: 'requests' | 'lost' | 'closed') => totals.reduce((all, total) => all + total[key], 0)
      return { requests: sum('requests'), lost: sum('lost'), closed: sum('closed') }
    },
  }
}
