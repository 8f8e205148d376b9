// The facts of one deployment, and how they are read back from the containers that an interrupted one left. Pure.
// Must hold: everything that is needed to undo the work is on the successor's label before the old container is touched.

import type { ContainerInspection, RestartPolicy } from './inspection.ts'
import { labelsOf } from './inspection.ts'
import { ORIGIN_LABEL } from './reference.ts'

/** On the successor, as JSON in the label `baton.recreated-from`. */
export interface JobOrigin {
  format: 1
  /** name that the service's container has */
  name: string
  kind: 'update' | 'rollback'
  /** as it was asked for: a tag, `latest`, or `rollback` */
  release: string
  /** what the successor must report, null where its image does not tell */
  version: string | null
  /** id of the old container */
  predecessor: string
  /** id of its image, and what is needed to find that again */
  image: string
  digest: string | null
  reference: string
  /** where the tag is that keeps that image */
  repository: string
  /** version that ran before, null where its image does not tell */
  from: string | null
  restart: RestartPolicy
  /** whether it passed its health check; then it must pass it again when it is put back */
  healthy: boolean
  /** copy of the database from before the switch, inside the container */
  snapshot: string | null
  /** where compose takes the release from, so that its file says what runs; null without compose, or with a tag in the file itself */
  compose: { environmentFile: string; variable: string; value: string } | null
  /** whether it is compose's: then nothing is kept beside it that compose would take for its own */
  ofCompose: boolean
}

export interface Job {
  origin: JobOrigin
  predecessor: string
  successor: string
  /** id of the image that the successor must run */
  image: string
}

/** What stands under the names that this route gives. */
export interface Site {
  main: ContainerInspection | null
  successor: ContainerInspection | null
  predecessor: ContainerInspection | null
  reverting: ContainerInspection | null
  previous: ContainerInspection | null
  failed: ContainerInspection | null
  switcher: ContainerInspection | null
}

/**
 * Where an interrupted deployment was left. `prepared`: the successor is made, the old one has its name. `renaming`: the old
 * one has given its name up. `switching`: the successor has the name, and may be on probation. `reverting`: the old one is being put back.
 */
export type Unfinished = { at: 'prepared' | 'renaming' | 'switching' | 'reverting'; job: Job }

export function parseOrigin(container: ContainerInspection): JobOrigin | null {
  try {
    const origin = JSON.parse(labelsOf(container)[ORIGIN_LABEL] ?? '') as JobOrigin
    return origin.format === 1 ? origin : null // another format is of a newer one of this program
  } catch {
    return null
  }
}

export function unfinishedAt(site: Site): Unfinished | null {
  const found = (
    at: Unfinished['at'],
    successor: ContainerInspection,
    main: ContainerInspection | null,
  ): Unfinished | null => {
    const origin = parseOrigin(successor)
    // with compose's or somebody else's container under the name there is nothing to go back to
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

/** The inspection as it is with the restart policy that the service has: until the commit, the new container has none. */
export function asItWas(container: ContainerInspection, origin: JobOrigin): ContainerInspection {
  return { ...container, HostConfig: { ...container.HostConfig, RestartPolicy: origin.restart } }
}
