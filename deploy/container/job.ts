// The facts of one deployment, and how to read them back from the containers that an interrupted deployment left. Pure.
// Must hold: the successor's label has everything needed to undo the deployment before the old container is touched.

import { parsedJson } from '../../agent/words.ts'
import { type ContainerInspection, labelsOf, type RestartPolicy } from './inspection.ts'
import { ORIGIN_LABEL } from './reference.ts'
import type { TakenCopy } from './state-order.ts'

/** The successor carries it as JSON in the label `baton.recreated-from`. */
export interface JobOrigin {
  format: 1
  /** name of the service's container */
  name: string
  kind: 'update' | 'rollback'
  /** what was asked for: a tag, `latest`, or `rollback` */
  release: string
  /** version that the successor must report; null if its image does not say */
  version: string | null
  /** id of the old container */
  predecessor: string
  /** id of the old container's image; `digest` and `reference` find that image again */
  image: string
  digest: string | null
  reference: string
  /** repository of the tag that keeps that image */
  repository: string
  /** version that ran before; null if its image does not say */
  from: string | null
  restart: RestartPolicy
  /** whether the old container passed its health check; if so, it must pass it again when it is put back */
  healthy: boolean
  /** path, inside the container, of the database's copy from before the switch; null if there is none */
  snapshot: string | null
  /** the same as the engine's host has it; null: it is on no mount. Older versions of this program left it out */
  snapshotOnHost?: string | null
  /** copies of what is not in SQLite, from before the switch; absent: none */
  copies?: ContainerCopy[]
  /** they are made once the old container has ended, and that may take so long; absent: no */
  owesMs?: number
  /**
   * variable to set, so that compose's file says what runs; null without compose, or if the compose file names the tag itself.
   * `environmentFile` is a path without links, and `folder` tells its folder from any other (environment-file.ts); older versions
   * of this program left that out
   */
  compose: { environmentFile: string; folder?: string; variable: string; value: string } | null
  /** whether the container is compose's; if so, no other container is kept that compose would take for its own */
  ofCompose: boolean
  /** if the container moves behind a holder or out again: which way, and the holder's id */
  hold?: { way: HoldWay; holder: string }
}

/** A copy of data that are not in SQLite. */
export interface ContainerCopy extends TakenCopy {
  /** as the engine's host has it; null: it is on no mount */
  onHost: string | null
}

/** The words that stand for a release: the same image, behind a holder (hold.ts) or out again. */
export type HoldWay = 'hold' | 'no-hold'

/** what `JobOrigin.release` says where no release was named */
const WORDS = ['latest', 'rollback', 'hold', 'no-hold']

export interface Job {
  origin: JobOrigin
  predecessor: string
  successor: string
  /** id of the image that the successor must run */
  image: string
  /** a person has allowed a release with no way back; only the process that has tried it knows */
  irreversible?: Irreversible
}

export interface Irreversible {
  /** why there is no way back from what the new release does to the data */
  reason: string
  /** where the data are as they were before, as the engine's host has it if it does */
  copy: string
  /** null: not counted */
  rows: number | null
}

/** The containers under the names that this route gives (`namesFor`). */
export type Site = Record<
  'main' | 'successor' | 'predecessor' | 'reverting' | 'previous' | 'failed' | 'switcher',
  ContainerInspection | null
>

/**
 * Where an interrupted deployment stopped. `prepared`: the successor is created; the old container still has its name.
 * `renaming`: the old container gave up its name. `switching`: the successor has the name, and may be on probation. `reverting`:
 * the old container is being put back.
 */
export type Unfinished = { at: 'prepared' | 'renaming' | 'switching' | 'reverting'; job: Job }

export function parseOrigin(container: ContainerInspection): JobOrigin | null {
  const origin = parsedJson(labelsOf(container)[ORIGIN_LABEL] ?? '') as Partial<JobOrigin> | null | undefined
  return origin?.format === 1 ? (origin as JobOrigin) : null // a newer version of this program wrote another format
}

/** The version or the tag that it deploys; null if that is not known: a word such as `hold` or `latest` names no release. */
export function releaseOf({ version, release }: Pick<JobOrigin, 'version' | 'release'>): string | null {
  return version ?? (WORDS.includes(release) ? null : release)
}

export function unfinishedAt(site: Site): Unfinished | null {
  const found = (
    at: Unfinished['at'],
    successor: ContainerInspection,
    main: ContainerInspection | null,
  ): Unfinished | null => {
    const origin = parseOrigin(successor)
    // if a container of compose or of a person has the name, there is nothing to go back to
    if (origin === null || (main !== null && main.Id !== origin.predecessor)) return null
    return { at, job: { origin, predecessor: origin.predecessor, successor: successor.Id, image: successor.Image } }
  }
  const { main, successor, predecessor, reverting } = site
  if (reverting !== null) return found('reverting', reverting, main)
  if (successor !== null) return found(main === null ? 'renaming' : 'prepared', successor, main)
  if (main !== null && predecessor !== null && parseOrigin(main)?.predecessor === predecessor.Id)
    return found('switching', main, null)
  return null
}

/** The inspection with the service's restart policy: until the commit, the new container has none. */
export function asItWas(container: ContainerInspection, origin: JobOrigin): ContainerInspection {
  return { ...container, HostConfig: { ...container.HostConfig, RestartPolicy: origin.restart } }
}
