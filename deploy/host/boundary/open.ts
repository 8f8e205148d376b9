// Who does what is to be done in the service's places: this process, where it is the service's user itself; where root runs the
// command for a service of another user, a process that has become that user for good.

import { isSea } from 'node:sea'
import type { Receipt } from '../../../agent/install.ts'
import { BatonError } from '../../../agent/words.ts'
import type { Environment, Scope } from '../place/choices.ts'
import { idOf, isRoot } from '../place/identity.ts'
import { detachedSupervisor, detachedWords } from '../supervisor/detached.ts'
import { systemdSupervisor } from '../supervisor/systemd.ts'
import type { Supervisor } from '../supervisor/supervisor.ts'
import type { Outside } from '../service/outside.ts'
import { makeSide, type Side } from '../service/side.ts'
import { canConfine, endSlice } from './confine.ts'
import { serviceEnvironment } from './environment.ts'
import { openFront } from './front.ts'
import { ownFile, ownNode } from '../place/own.ts'

/** Whose places. */
export interface Owner {
  service: string
  scope: Scope
  user: string
  feed: string
  withUnit: boolean
  environmentFile: string
  /** text of its unit, and what its processes write */
  unit: string
  places: readonly string[]
}

export interface OpenSide extends AsyncDisposable {
  side: Side
  /** what root starts here is in the sandbox of the service; null where root starts nothing for somebody else */
  confined: boolean | null
}

type Told = Pick<Outside, 'stage' | 'bytes' | 'note'>

/** This program, as somebody else starts it again. */
export function ownProgram(): [string, ...string[]] {
  const script = process.argv[1]
  return isSea() || script === undefined ? [process.execPath] : [process.execPath, ...process.execArgv, script]
}

/** Whether root is to be kept apart from the service. */
export async function isCrossing({ scope, user }: Pick<Owner, 'scope' | 'user'>): Promise<boolean> {
  return isRoot() && scope === 'system' && (await idOf(user)).uid !== 0
}

/** `deadlineMs`: what root has started is ended then. */
export async function openSide(
  owner: Owner,
  told: Told,
  environment: Environment,
  deadlineMs: number,
): Promise<OpenSide> {
  const { service, scope, user, feed, withUnit, unit: text, places } = owner
  const unit = withUnit ? systemdSupervisor({ service, scope }) : null
  if (!(await isCrossing(owner))) {
    const supervisor = (receipt: Receipt) => unit ?? detachedSupervisor(receipt)
    const side = makeSide({ ...told, supervisor, feedAt: (setting) => setting }, { path: ownFile() })
    return { side, confined: null, [Symbol.asyncDispose]: () => side.unlock() }
  }
  const node = ownNode()
  // what holds a service without systemd holds nothing else either; and who starts it must outlive the command
  const confined = withUnit && (await canConfine())
  const front = await openFront({
    program: ownProgram(),
    identity: await idOf(user),
    environment: {
      ...(node === null ? {} : { BATON_NODE: node }),
      ...(confined ? {} : await serviceEnvironment(service, withUnit, owner.environmentFile, environment)),
    },
    sandbox: confined ? { service, unit: text, places } : null,
    feed,
    outside: told,
    supervisor: unit,
    deadlineMs,
  })
  return { side: front.side, confined, [Symbol.asyncDispose]: () => front.close() }
}

/** Nothing that a command of root's has started for this service is left, not by one that was killed either. */
export async function endCommands({ service, scope }: Pick<Owner, 'service' | 'scope'>): Promise<void> {
  if (isRoot() && scope === 'system') await endSlice(service)
}

/** What starts and stops the service, for the command itself. */
export function supervisorOf(receipt: Receipt, side: Side): Supervisor {
  if (receipt.supervisor !== 'none') return systemdSupervisor(receipt)
  return {
    ...detachedWords(receipt),
    state: () => side.supervisorState(receipt),
    start: () => side.supervisorStart(receipt),
    stop: () => side.supervisorStop(receipt),
  }
}

/** For code that is only ever the service's own: the rescue, the supervision. */
export function assertNotRootFor({ user, service }: Receipt, uid: number): void {
  if (!isRoot() || uid === 0) return
  throw new BatonError('refused', `expected to run as ${user}, got root`, {
    hint: `the supervisor of ${service} runs this by itself`,
  })
}
