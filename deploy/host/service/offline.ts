// Carries an operation out while the service does not run: the same story as in the agent, with a restart step that starts the
// service and waits until it answers. Runs as the service's user; it asks `outside` to start and stop the service.

import { setTimeout as sleep } from 'node:timers/promises'
import {
  begin,
  blameless,
  type LogEvent,
  type ManagedInstall,
  noteTag,
  openFeed,
  openInstall,
  orHindered,
  type Receipt,
  type Restart,
  tagInPlace,
} from '../../../agent/install.ts'
import {
  asBatonError,
  BatonError,
  cancellation,
  EXIT,
  type Operation,
  reasonOf,
  type Status,
} from '../../../agent/words.ts'
import { formatCrashes, isCrashed, isLooping } from '../supervisor/crashes.ts'
import type { Supervisor, SupervisorState } from '../supervisor/supervisor.ts'
import { type Client, waitForInstance } from './client.ts'
import { feedOf, readyMsFor, readyMsOf } from './configuration.ts'
import { askUntilWell } from './health.ts'
import { heedInterrupts } from './interrupts.ts'
import type { Outside } from './outside.ts'
import { databaseOf } from './own-database.ts'
import type { Operate } from './request.ts'

/** how long a process must go on answering before a start counts as good */
const STABLE_MS = 1500
const DRAW_MS = 100

export async function carryOutHere(
  receipt: Receipt,
  client: Client,
  request: Operate,
  outside: Outside,
): Promise<Operation> {
  const starts = receipt.options['start'] !== false
  const supervisor = outside.supervisor(receipt)
  const { service } = receipt
  await using feed = openFeed(outside.feedAt(await feedOf(receipt)), {
    service,
    stateDirectory: receipt.stateDirectory,
    onMoved: outside.note,
    onLeftOut: outside.note,
  })
  const install = await installOf(receipt, feed, outside)
  let wasDown = false
  const restart: Restart = async (to) => {
    if (!starts) return { open: true } // the release goes on probation when the service is started
    try {
      await start(supervisor, outside)
      await waitUntilStable(receipt, client, to, request.healthTimeoutMs, outside)
      if (request.healthUrl !== null) await askUntilWell(request.healthUrl, request.healthTimeoutMs)
    } catch (cause) {
      await supervisor.stop().catch(() => {})
      if (wasDown) throw notTo(cause, install.current, to)
      const failure = asBatonError(cause, 'restart_failed', 'restarting')
      throw orHindered(failure, to, { how: failure.message, said: null })
    }
    return {}
  }
  const { who, kind, tag, allowIrreversible, restoreState } = request
  // look again under the lock: its last holder may have changed what is installed, and may be starting it
  const prepare = async () => {
    wasDown = isCrashed(await makeWay(receipt, supervisor, client))
    install.current = await tagInPlace(receipt.stateDirectory, receipt.executable)
  }
  const running = await begin(
    install,
    { kind, tag, allowIrreversible, restoreState, who, refusal: 'locked', prepare },
    restart,
  )
  const cancel = () => void running.cancel(cancellation('by a signal'))
  const interrupts = heedInterrupts(cancel, () => process.exit(EXIT.unexpected))
  const timer = setInterval(() => {
    const { progress } = running.operation
    const { stage } = running.operation
    if (progress !== null && (stage === 'download' || stage === 'swap'))
      outside.bytes(progress.bytes, progress.totalBytes)
  }, DRAW_MS)
  const result = await running.done.finally(() => {
    clearInterval(timer)
    interrupts[Symbol.dispose]()
  })
  const operation: Operation = { ...running.operation, outcome: running.operation.outcome ?? result.outcome }
  if (operation.outcome === 'reverted' && starts) await startAgain(receipt, client, operation, request, outside)
  if (operation.outcome === 'up_to_date') await bringUp(receipt, client, install.current, request, outside)
  if (result.placed !== null) await noteTag(install, result.placed)
  return operation
}

/**
 * Waits until one process of `tag` has answered twice, 1.5 s apart: a service may die a second after its start. If it does not, the
 * error says how it has ended. A start may have a migration in it: `update.readyTimeout` of the configuration may be longer than `timeoutMs`.
 */
export async function waitUntilStable(
  receipt: Receipt,
  client: Client,
  tag: string,
  timeoutMs: number,
  outside: Outside,
): Promise<Status> {
  outside.stage('health')
  const supervisor = outside.supervisor(receipt)
  const whyNever = async () => ((await supervisor.state()).word === 'failed' ? 'it will not be restarted' : null)
  try {
    const mostMs = Math.max(timeoutMs, (await readyMsOf(receipt)) ?? 0)
    const first = await waitForInstance(client, { tag, timeoutMs: mostMs, whyNever, note: outside.note })
    await sleep(STABLE_MS)
    const second = await waitForInstance(client, { tag, timeoutMs: 5000, whyNever })
    if (second.instance.id === first.instance.id) return second
    throw new BatonError('service_down', `${receipt.service} ${tag} stopped responding soon after it started`)
  } catch (cause) {
    const crashes = (await supervisor.state().catch(() => null))?.crashes ?? null
    if (crashes === null) throw cause
    const hint = `for details, see \`${supervisor.logCommand}\``
    throw new BatonError('service_down', `${reasonOf(cause)}; ${formatCrashes(crashes)}`, { cause, hint })
  }
}

/**
 * For an operation that has nothing to do while nobody answers: it ends as one that had something to do, with a service that answers. Throws
 * service_down if it does not.
 */
export async function bringUp(
  receipt: Receipt,
  client: Client,
  tag: string,
  { healthTimeoutMs }: Pick<Operate, 'healthTimeoutMs'>,
  outside: Outside,
): Promise<void> {
  if (receipt.options['start'] === false) return // whoever installed it so starts it
  outside.note(`${tag} is in place, but ${receipt.service} was down: starting it`)
  try {
    await start(outside.supervisor(receipt), outside)
  } catch (cause) {
    throw new BatonError('service_down', reasonOf(cause), { cause })
  }
  await waitUntilStable(receipt, client, tag, healthTimeoutMs, outside)
}

async function start(supervisor: Supervisor, outside: Outside): Promise<void> {
  outside.stage('start')
  await supervisor.start()
}

/** The version before was down as well, and nobody had stopped it: what brings both down may be this host's. */
function notTo(cause: unknown, from: string, to: string): BatonError {
  const reason = `${reasonOf(cause)}; ${from} was already down before this operation, so ${to} is not recorded as failed`
  return blameless('restart_failed', reason, { cause })
}

/**
 * Stops a service in a restart loop, which would be in the way. Refuses if the service answers: then it does the work itself. Resolves
 * to what the supervisor said before.
 */
async function makeWay({ service }: Receipt, supervisor: Supervisor, client: Client): Promise<SupervisorState> {
  const state = await supervisor.state()
  if (!state.active && state.word !== 'activating') return state
  if ((await client.status()) !== null) {
    throw new BatonError('locked', `${service} was started in the meantime`, {
      hint: 'run the command again; the running service will handle it',
    })
  }
  if (state.word === 'activating' && !isLooping(state)) {
    throw new BatonError('refused', `${service} is starting (${supervisor.description}) and may be migrating data`, {
      hint: 'wait until it answers, then try again',
    })
  }
  if (state.word === 'active' && !isLooping(state)) {
    throw new BatonError('refused', `${service} is running (${supervisor.description}) but does not answer`, {
      hint: `stop it first, then try again; \`${supervisor.logCommand}\` may show why it does not answer`,
    })
  }
  await supervisor.stop()
  return state
}

/** Starts the service after a revert. Throws service_down if the old executable does not run either. */
async function startAgain(
  receipt: Receipt,
  client: Client,
  operation: Operation,
  request: Operate,
  outside: Outside,
): Promise<void> {
  const supervisor = outside.supervisor(receipt)
  try {
    await start(supervisor, outside)
    await waitUntilStable(receipt, client, operation.from, request.healthTimeoutMs, outside)
  } catch (cause) {
    throw new BatonError(
      'service_down',
      `${operation.to ?? ''} failed: ${operation.error?.message ?? ''}, and ${operation.from} does not start either: ${reasonOf(cause)}`,
      { cause, hint: `run \`${supervisor.logCommand}\` to see why` },
    )
  }
}

/** The install as an operation needs it, in a process in which no application runs. */
export async function installOf(
  receipt: Receipt,
  feed: ManagedInstall['feed'],
  outside: Outside,
): Promise<ManagedInstall> {
  const { service, executable, stateDirectory } = receipt
  const log = (event: LogEvent) => {
    if (event.event === 'operation') outside.stage(event.stage)
    if (event.event === 'warning') outside.note(`warning: ${event.message}`)
  }
  const current = await tagInPlace(stateDirectory, executable)
  return openInstall({
    service,
    executable,
    current,
    stateDirectory,
    database: await databaseOf(receipt),
    feed,
    readyMs: await readyMsFor(receipt),
    receipt,
    log,
  })
}
