// Chooses which process acts on the service's files. If root runs the command for another user's service, that is a worker that has
// become that user for good; otherwise it is this process.

import { isSea } from 'node:sea'
import { copyWith, type Receipt } from '../../../agent/install.ts'
import { cleanEnvironment } from '../../lib/passed.ts'
import type { Environment, Scope } from '../place/choices.ts'
import { idOf, isRoot } from '../place/identity.ts'
import { detachedSupervisor, detachedWords } from '../supervisor/detached.ts'
import { systemdSupervisor } from '../supervisor/systemd.ts'
import type { CommandSupervisor } from '../supervisor/supervisor.ts'
import type { Outside } from '../service/outside.ts'
import { makeSide, type Side } from '../service/side.ts'
import { canConfine, endSlice } from './confine.ts'
import { environmentBeside, serviceEnvironment } from './environment.ts'
import { openFront } from './front.ts'
import { ownFile, ownNode } from '../place/own.ts'

/** Whose files a command acts on. */
export interface Owner {
  service: string
  scope: Scope
  user: string
  feed: string
  withUnit: boolean
  environmentFile: string
  /** text of its unit, and the directories that its processes write */
  unit: string
  places: readonly string[]
}

export interface OpenSide extends AsyncDisposable {
  side: Side
  /** whether the worker runs in the service's sandbox; null if there is no worker */
  confined: boolean | null
}

type Told = Pick<Outside, 'stage' | 'bytes' | 'note'>

/** The command line that starts this program again. */
export function ownProgram(): [string, ...string[]] {
  const script = process.argv[1]
  return isSea() || script === undefined ? [process.execPath] : [process.execPath, ...process.execArgv, script]
}

/** Whether root runs a command for another user's service, so that a worker must act instead of root. */
export async function isCrossing({ scope, user }: Pick<Owner, 'scope' | 'user'>): Promise<boolean> {
  return isRoot() && scope === 'system' && (await idOf(user)).uid !== 0
}

/** `deadlineMs`: how long a worker may live; root kills it then. */
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
    // of a unit nothing comes from the shell that has typed the command
    const { HOME, USER, LOGNAME } = environment
    const own = withUnit ? { ...cleanEnvironment(environment), HOME, USER, LOGNAME } : environment
    copyWith(async () => await environmentBeside(owner, own, told.note))
    const side = makeSide({ ...told, supervisor, feedAt: (choice) => choice }, { path: ownFile() })
    return { side, confined: null, [Symbol.asyncDispose]: () => side.unlock() }
  }
  const node = ownNode()
  // a service without a unit has no sandbox to copy, and its supervision, which a command starts, must outlive the command
  const confined = withUnit && (await canConfine())
  const front = await openFront({
    program: ownProgram(),
    identity: await idOf(user),
    environment: {
      ...(node === null ? {} : { BATON_NODE: node }),
      ...(confined ? {} : await serviceEnvironment(service, withUnit, owner.environmentFile, user, environment)),
    },
    sandbox: confined ? { service, unit: text, places } : null,
    feed,
    outside: told,
    supervisor: unit,
    deadlineMs,
  })
  return { side: front.side, confined, [Symbol.asyncDispose]: () => front.close() }
}

/** Ends everything that root's commands have started for this service, also by commands that were killed. */
export async function endCommands({ service, scope }: Pick<Owner, 'service' | 'scope'>): Promise<void> {
  if (isRoot() && scope === 'system') await endSlice(service)
}

/** Starts and stops the service for this command. Without systemd it asks the worker to. */
export function supervisorOf(receipt: Receipt, side: Side): CommandSupervisor {
  if (receipt.supervisor !== 'none') return systemdSupervisor(receipt)
  return {
    ...detachedWords(receipt),
    state: () => side.supervisorState(receipt),
    start: () => side.supervisorStart(receipt),
    stop: () => side.supervisorStop(receipt),
    restart: () => side.supervisorRestart(receipt),
  }
}
