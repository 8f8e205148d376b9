// The two arguments of every step of a deployment: what it is asked to do, and the tools to do it with.

import { BatonError } from '../../agent/words.ts'
import type { Engine } from './engine/engine.ts'
import type { ContainerReport, ContainerStep } from './report.ts'

export const PULLS = ['always', 'missing', 'never'] as const

/** An image that this host lacks, where `--pull never` keeps it from being pulled. */
export function notHere(reference: string, hint: string): BatonError {
  const message = `${reference} is not on this host, and \`--pull never\` prevents pulling it`
  return new BatonError('release_not_found', message, { hint })
}

export interface ContainerRequest extends Limits {
  /** name, id, or `label=key=value` */
  container: string
  /** `latest` or a tag; `hold` or `no-hold`: the same image, behind a holder or not; null for a rollback */
  release: string | null
  /** for `hold`: the holder's image; null: the tag `holder` of the container's repository */
  holder?: string | null
  /** for a rollback: the release that must have run before; null: any */
  backTo: string | null
  /** repository to take the release from; null: the one of the container's image */
  repository: string | null
  /** digest that the release's image must have, from a trusted source; null: the registry's word counts */
  digest: string | null
  /** whether the registry is asked for the release, as compose says it; default `always` */
  pull?: (typeof PULLS)[number]
  /** the signed feed that says which image a release is; null: the registry's tags count */
  signedBy: SignedBy | null
  /** in a compose project: the next `up` may also move other services that use the same variable */
  withShared: boolean
  /** a release with no way back from what it does to the data is allowed */
  allowIrreversible: boolean
  /** false: the release is not tried on a copy of the data */
  rehearse: boolean
  dryRun: boolean
}

export interface SignedBy {
  feed: string
  /** path of a root.json; null: the one built into this program */
  root: string | null
}

export interface Limits {
  healthTimeoutMs: number
  probationMs: number
}

/** the hint about a release that was waited for */
export const LONGER = 'if it needs longer, raise `--health-timeout`'

/** This program as an image of the engine, so that the engine can start it again. */
export interface Program {
  image: string
  /** words that start it; its arguments follow */
  entrypoint: string[]
  /** path of the engine's socket on the engine's host */
  socket: string
}

export interface Tools {
  engine: Engine
  report: ContainerReport
  /** `X-Registry-Auth` header for this repository's registry; null without a login */
  credentials: (repository: string) => Promise<string | null>
  /** aborted to end the deployment: what is under way is undone */
  stop: AbortSignal
  /** null: this process does the switch */
  program: (() => Promise<Program>) | null
}

/** Reports the next step. Throws BatonError interrupted if the deployment was stopped. */
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
