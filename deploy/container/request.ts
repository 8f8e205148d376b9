// What a deployment is asked to do, and what it is done with: the two arguments of every step of it.

import { BatonError } from '../../agent/words.ts'
import type { Engine } from './engine/engine.ts'
import type { ContainerReport, ContainerStep } from './report.ts'

export interface ContainerRequest extends Limits {
  /** name, id, or `label=key=value` */
  container: string
  /** `latest` or a tag; null for a rollback */
  release: string | null
  /** of a rollback: the release that must be the one before; null: whichever it is */
  backTo: string | null
  /** repository to take the release from; null: the one of the container's image */
  repository: string | null
  /** digest that the release's image must have, where somebody who is believed says so; null: the registry's word counts */
  digest: string | null
  /** the signed feed that says which image a release is; null: the registry's tags count */
  signedBy: SignedBy | null
  /** of a compose project: other services that take the same variable may be moved by the next `up` */
  withShared: boolean
  dryRun: boolean
}

export interface SignedBy {
  feed: string
  /** path of a root.json; null: the one that this program was built with */
  root: string | null
}

export interface Limits {
  healthTimeoutMs: number
  probationMs: number
}

/** This very program in an image of the engine, so that the engine can start it again. */
export interface Program {
  image: string
  /** starts it; its arguments come after this */
  entrypoint: string[]
  /** where the engine's host has the engine's socket */
  socket: string
}

export interface Tools {
  engine: Engine
  report: ContainerReport
  /** header for the registry of this repository */
  credentials: (repository: string) => Promise<string | null>
  /** somebody wants it to end: what is under way is undone */
  stop: AbortSignal
  /** null: the switch is done by this process */
  program: (() => Promise<Program>) | null
}

/** Says what comes next, unless somebody wants it to end. Throws BatonError interrupted. */
export async function step(
  { report, stop }: Pick<Tools, 'report' | 'stop'>,
  name: ContainerStep,
  detail: string,
): Promise<void> {
  refuseStopped(stop)
  await report({ event: 'step', step: name, detail })
}

export function refuseStopped(stop: AbortSignal): void {
  if (stop.aborted) throw new BatonError('interrupted', `stopped by ${String(stop.reason)}`)
}
