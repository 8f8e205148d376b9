// What a peer of the bench is: something that serves, and can be switched between two versions there and back.

import { untilAnswers } from './processes.ts'

/** The two versions that every peer switches between. */
export const TAGS = ['v1.0.0', 'v1.1.0'] as const
export type Tag = (typeof TAGS)[number]

export interface Place {
  /** an empty folder of its own */
  folder: string
  port: number
  /** where streams and websockets of a proxy are served */
  backendPort: number
  drainMs: number
}

export interface Running extends AsyncDisposable {
  prepare(tag: Tag): Promise<void>
  go(): Promise<void>
  finish(): Promise<void>
  /** Asks whether all went well, where the peer can tell; the load goes on, and what it sees counts for nothing. */
  confirm?(): Promise<void>
  /** milliseconds of the last switch that went into starting and taking over, where the peer tells */
  restartMs?(): number
}

export interface Bare extends AsyncDisposable {
  /** `performance.now()` of the spawn, where something else came before it */
  startedAt?: number
}

export interface Peer {
  id: string
  title: string
  version: string
  /** how it is configured, for docs/about/performance.md */
  configuration: string
  /** a C server: comparable in what it loses, not in how fast it starts */
  native: boolean
  /** path of the streaming responses */
  open(place: Place): Promise<Running>
  /** one process of the same executable, for the bare start-up time; by default what `open` starts */
  bare?(place: Place): Promise<Bare>
}

/** Gives the order; milliseconds until the new version answers. */
export async function switchOnce(running: Running, port: number, tag: Tag, prepared = false): Promise<number> {
  if (!prepared) await running.prepare(tag)
  const since = performance.now()
  await running.go()
  return await untilAnswers(port, tag, since)
}

export function other(tag: Tag): Tag {
  return tag === TAGS[0] ? TAGS[1] : TAGS[0]
}
