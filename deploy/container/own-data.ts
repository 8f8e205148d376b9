// The data of a release with no way back that a person has allowed (`--allow-irreversible`). If it fails, the old release cannot work on what it has
// made of them. So both containers follow a mark in the state directory, as the two releases of a host do (agent/disk/state-mark.ts):
// the new one copies the data before its application's first line, when the old one has ended, and the old one, put back, takes
// them again before its own first line. What the new one has left is put aside. Also `--restore-state`, and the copies of other data that
// are made once the old one has ended (`snapshot.when`).
// Must hold: the mark names both containers, and no other follows it; whoever goes on with a switch finds it in the volume.

import { posix } from 'node:path'
import {
  isCount,
  MARK_MAX_BYTES,
  markPath,
  OWED_MAX_BYTES,
  owedPath,
  paidPath,
  plainOf,
  snapshotDirectory,
} from '../../agent/install.ts'
import {
  BatonError,
  compareTags,
  isObject,
  isTag,
  parsedJson,
  reasonOf,
  type StateMoved,
  untilWell,
} from '../../agent/words.ts'
import { type Engine, isAway, isUnreachable } from './engine/engine.ts'
import { orderIn } from './gate.ts'
import { type ContainerInspection, type ImageInspection, isSame, labelsOf } from './inspection.ts'
import type { ContainerCopy, Job } from './job.ts'
import { again } from './moves.ts'
import { IMAGE_LABELS } from './reference.ts'
import type { ContainerEnd } from './report.ts'
import { snapshotCommand, takenCopies } from './snapshot.ts'
import { STATE_ORDER, type StateAnswer, type StateOrder, type TakenCopy } from './state-order.ts'

const ORDER_MS = 60_000
/** the commands of a restore, of a day at most each */
const RESTORE_MAX_MS = 4 * 86_400_000
/** how long the engine may take to start a container that has ended; its pause doubles with each end */
const STARTED_MS = 30_000

/**
 * From now on each of the two containers has its own data, until `settle`. Null; or why that cannot be, and nothing is exchanged then.
 */
export async function markData(
  { origin, predecessor, successor }: Job,
  candidate: ImageInspection,
  engine: Engine,
): Promise<string | null> {
  const [old, next] = [await engine.container(predecessor), await engine.container(successor)]
  if (old === null || next === null || origin.version === null) return 'the new release does not report its version'
  if (!beginsWithKit(next, candidate)) return NO_KIT
  try {
    await order(old, { do: 'mark', containers: [predecessor, successor], next: origin.version }, engine)
    return null
  } catch (cause) {
    if (isAway(cause)) throw cause
    return reasonOf(cause)
  }
}

const NO_KIT = 'the new release lacks baton-kit’s startup code'

function beginsWithKit(next: ContainerInspection, candidate: ImageInspection): boolean {
  return orderIn(candidate) !== null && isSame(next.Config.Entrypoint, candidate.Config?.Entrypoint)
}

/**
 * Has the new container copy what is not in SQLite before its application's first line. Throws BatonError refused if it cannot.
 */
export async function orderCopies(
  { origin, predecessor, successor }: Job,
  candidate: ImageInspection,
  engine: Engine,
): Promise<void> {
  const [old, next] = [await engine.container(predecessor), await engine.container(successor)]
  if (old === null || next === null || !beginsWithKit(next, candidate)) {
    throw new BatonError('refused', `the new container copies the data once the old one has stopped, but ${NO_KIT}`, {
      hint: 'set `update.snapshot.when: "before"` in the configuration to copy the data while the old container runs',
    })
  }
  await order(old, { do: 'owe', container: successor, kind: origin.kind }, engine)
}

/** Whether the container has yet to do that, or `orderRestore`, before its application begins. */
export async function owesStill(container: ContainerInspection, engine: Engine): Promise<boolean> {
  return (await noteIn(container, owedPath, engine, OWED_MAX_BYTES))?.['container'] === container.Id
}

/** What became of it in the container; null: nothing (yet). `by`: its id, or the name of the copy. */
export async function paidIn(container: ContainerInspection, by: string, engine: Engine): Promise<PaidThere | null> {
  const said = await noteIn(container, paidPath, engine)
  if (said === null || said['by'] !== by) return null
  const folder = snapshotDirectory(labelsOf(container)[IMAGE_LABELS.state] ?? '')
  const named = Array.isArray(said['copies']) ? said['copies'].filter(isObject) : []
  const copies = named.map((one) => ({ ...one, path: posix.join(folder, String(one['name'])) }))
  const plain = (value: unknown) => (typeof value === 'string' ? plainOf(value) : null)
  const [aside, error] = [plain(said['aside']), plain(said['error'])]
  return {
    copies: copiesOnHost(container, takenCopies(copies)),
    aside: aside === null ? null : (onHost(container, aside) ?? aside),
    error,
  }
}

export interface PaidThere {
  copies: ContainerCopy[]
  /** what a restore has put aside, as the engine's host has it if it does */
  aside: string | null
  /** why nothing was copied, or restored; null: it was */
  error: string | null
}

/** What the mark of this switch says; null: there is none. `isBack`: the old release has begun again, and has its own data. */
export async function exchangeMark(
  { origin, predecessor, successor }: Pick<Job, 'origin' | 'predecessor' | 'successor'>,
  engine: Engine,
): Promise<{ isBack: boolean } | null> {
  for (const id of [predecessor, successor]) {
    const container = await engine.container(id)
    const mark = container === null ? null : await readMark(container, engine)
    if (mark === null || !mark.containers.includes(successor)) continue
    return { isBack: mark.exchanged !== null && mark.owner === origin.from }
  }
  return null
}

/**
 * What `one` of the mark's containers was in is over, and `id` serves. Resolves to what was exchanged, with paths as the engine's host has
 * them, also if an earlier run, which was killed then, has settled it.
 */
export async function settleData(id: string, one: string, engine: Engine): Promise<StateMoved | null> {
  const container = await engine.container(id)
  const mark = container === null ? null : await readMark(container, engine)
  if (container === null || mark === null) return null
  if (mark.ended.includes(one)) return await lastExchange(container, engine)
  if (!mark.containers.includes(one)) return null
  const { moved } = await orderOutlived(container, { do: 'settle' }, engine)
  return moved === null ? null : onHostOf(container, moved)
}

/**
 * The copy that the new container has made of what the old one left when it had ended, which is newer than the one from before the trial.
 * Null: none, or it is not known. `one`: one of the mark's containers.
 */
export async function copyInSwitch(id: string, one: string, engine: Engine): Promise<SwitchCopy | null> {
  const container = await engine.container(id)
  const mark = container === null ? null : await readMark(container, engine)
  if (container === null || mark === null || ![...mark.containers, ...mark.ended].includes(one)) return null
  const path = mark.exchanged?.restored ?? mark.other
  return path === null ? null : { snapshot: path, snapshotOnHost: onHost(container, path) }
}

type SwitchCopy = Pick<ContainerEnd, 'snapshot' | 'snapshotOnHost'>

/**
 * At its next start the container takes this copy of its data; with `dryRun` it is only looked for. Resolves to how long that may take, and
 * the release whose data it holds. Throws BatonError not_found, refused.
 */
export async function orderRestore(
  container: ContainerInspection,
  { copy: name, dryRun }: { copy: string; dryRun: boolean },
  engine: Engine,
): Promise<{ mostMs: number; tag: string | null }> {
  const what: StateOrder = dryRun ? { do: 'find', name } : { do: 'restore', name, container: container.Id }
  const { mostMs = 0, tag = null } = await order(container, what, engine)
  return { mostMs, tag }
}

/** What was exchanged by the last switch or restore of this container; null: nothing, or that is not there any more. */
export async function lastExchange(container: ContainerInspection, engine: Engine): Promise<StateMoved | null> {
  const mark = await readMark(container, engine)
  if (mark === null || mark.exchanged === null || mark.containers.length > 0) return null
  const { aside, restored } = mark.exchanged
  const isThere = (await again(engine, () => engine.sizeOf(container.Id, aside))) !== null
  return isThere ? onHostOf(container, { aside, restored, rows: mark.rows }) : null
}

/**
 * The copy of the data from before the last update that had no way back and that a person allowed, if a rollback `from` one release `to` another
 * would pass it, and the releases before and after that update; null: there was no such update.
 */
export async function copyBeforeIrreversible(
  container: ContainerInspection,
  { from, to }: { from: string; to: string },
  engine: Engine,
): Promise<{ before: string; after: string; name: string } | null> {
  const mark = await readMark(container, engine)
  if (mark === null || mark.exchanged !== null || mark.containers.length > 0) return null
  const { owner: after, other, otherTag: before } = mark
  // a release may have written anything there, and the path goes to the engine
  if (other === null || !/^\/[\w@.:+/-]+$/.test(other) || !isTag(before) || !isTag(after)) return null
  if (compareTags(after, from) > 0 || compareTags(to, after) >= 0) return null
  const isThere = (await again(engine, () => engine.sizeOf(container.Id, other))) !== null
  return isThere ? { before, after, name: posix.basename(other) } : null
}

/** How a person goes back past such an update. `copy`: its name. Pure. */
export function wayBackTo(to: string, copy: string): string {
  return `to go back to ${to} and to the data from before the update, use \`--rollback --trial never\`, then \`--restore-state ${copy}\`; until then, ${to} runs on the changed data`
}

/** Where the engine's host has a path of the container; null: on no mount. Pure. */
export function onHost({ Mounts }: ContainerInspection, path: string): string | null {
  const inside = Mounts.filter(({ Destination }) => path.startsWith(`${Destination}/`))
  const [nearest] = inside.toSorted((a, b) => b.Destination.length - a.Destination.length)
  return nearest === undefined ? null : posix.join(nearest.Source, path.slice(nearest.Destination.length))
}

export function copiesOnHost(container: ContainerInspection, copies: readonly TakenCopy[]): ContainerCopy[] {
  return copies.map((one) => ({ ...one, onHost: onHost(container, one.path) }))
}

function onHostOf(container: ContainerInspection, { aside, restored, rows = null }: StateMoved): StateMoved {
  const place = (path: string) => onHost(container, path) ?? path
  return { aside: place(aside), restored: place(restored), rows }
}

interface Mark {
  containers: string[]
  ended: string[]
  owner: string
  exchanged: { aside: string; restored: string } | null
  /** path of the copy that the other release takes */
  other: string | null
  /** that release */
  otherTag: string | null
  rows: number | null
}

async function readMark(container: ContainerInspection, engine: Engine): Promise<Mark | null> {
  const found = await noteIn(container, markPath, engine)
  if (found === null || !Array.isArray(found['containers'])) return null
  const said: Partial<Omit<Mark, 'other'>> & Pick<Mark, 'containers'> = {
    ...found,
    containers: found['containers'] as string[],
  }
  const { aside, restored } = said.exchanged ?? {}
  const isWhole = typeof aside === 'string' && typeof restored === 'string'
  const rows = typeof said.rows === 'number' ? said.rows : null
  const exchanged = isWhole ? { aside: plainOf(aside), restored: plainOf(restored) } : null
  const ended = Array.isArray(said.ended) ? said.ended : []
  const { path = null, tag = null } = isObject(found['other']) ? found['other'] : {}
  const plain = (value: unknown) => (typeof value === 'string' ? plainOf(value) : null)
  const [other, otherTag] = [plain(path), plain(tag)]
  return { containers: said.containers, ended, owner: String(said.owner), exchanged, other, otherTag, rows }
}

/** What a file of its state directory says; null: nothing. The container may have written anything there. */
async function noteIn(
  container: ContainerInspection,
  pathIn: (stateDirectory: string) => string,
  engine: Engine,
  maxBytes = MARK_MAX_BYTES,
): Promise<Record<string, unknown> | null> {
  const state = labelsOf(container)[IMAGE_LABELS.state]
  if (state === undefined) return null
  const text = await again(engine, () => engine.readFile(container.Id, pathIn(state), maxBytes))
  const said = text === null ? null : parsedJson(text.toString())
  return isObject(said) ? said : null
}

/** As `order`. The container may end meanwhile, and the engine starts it once more: it is asked again once it has started. */
async function orderOutlived(container: ContainerInspection, what: StateOrder, engine: Engine): Promise<StateAnswer> {
  const startOf = async () => {
    const { Running, Restarting, StartedAt } = (await engine.container(container.Id))?.State ?? {}
    return Running === true && Restarting !== true ? StartedAt : null
  }
  const answers: StateAnswer[] = []
  const late = await untilWell(async () => {
    const start = await startOf()
    try {
      answers.push(await order(container, what, engine))
      return null
    } catch (cause) {
      // where the container has just ended, its engine hangs up without an answer; `awake` throws if it is the engine that is gone
      if (isUnreachable(cause)) await engine.awake()
      else if (isAway(cause) || (start !== null && start === (await startOf()))) throw cause
      return reasonOf(cause)
    }
  }, STARTED_MS)
  const [answer] = answers
  if (answer === undefined) throw new BatonError('refused', late ?? '')
  return answer
}

/** Throws if the release in the container does not know the order, or cannot carry it out. */
async function order(container: ContainerInspection, what: StateOrder, engine: Engine): Promise<StateAnswer> {
  const command = snapshotCommand(container)
  if (command === null)
    throw new BatonError('refused', 'the container’s image does not specify how to copy its database')
  const environment = { [STATE_ORDER]: JSON.stringify(what) }
  const { exitCode, output } = await again(engine, () => engine.exec(container.Id, command, ORDER_MS, environment))
  const last = output.trim().split('\n').at(-1) ?? ''
  if (exitCode !== 0) throw new BatonError('refused', plainOf(last.replace(/^error: /, '')).slice(0, 500))
  const answer = parsedJson(last)
  if (isObject(answer) && answer['moved'] !== undefined) {
    const { mostMs, tag } = answer
    return {
      moved: answer['moved'] as StateMoved | null,
      mostMs: isCount(mostMs) ? Math.min(mostMs, RESTORE_MAX_MS) : 0,
      ...(isTag(tag) ? { tag } : {}),
    }
  }
  throw new BatonError('refused', 'the running release is too old to restore data')
}
