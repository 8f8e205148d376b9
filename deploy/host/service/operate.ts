// One story, two callers. On a running managed install an update or a rollback is asked of the service itself, through its
// endpoint; where nothing runs, the same operation is carried out here, with a restart step that starts the service.
// Must never break: success is said only when a new process answers with the version asked for; what was reverted ends
// with 8, and a service that is down ends with 9.

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import {
  begin,
  installedTag,
  type LogEvent,
  type ManagedInstall,
  noteTag,
  openFeed,
  openInstall,
  type Receipt,
  type Restart,
} from '../../../agent/install.ts'
import {
  BatonError,
  type ErrorCode,
  type Kind,
  MEANINGS,
  type Operation,
  reasonOf,
  type Status,
} from '../../../agent/words.ts'
import { connect, follow, readAccess, waitForInstance, type Client } from './client.ts'
import { asRoot, asUser } from '../place/identity.ts'
import type { Report } from '../report.ts'
import { supervisorFor, type Supervisor } from '../supervisor/supervisor.ts'

export interface Operate {
  kind: Kind
  /** update: a tag, or null for the latest release */
  tag: string | null
  /** for the lock: `install.sh upgrade` */
  who: string
  lockTimeoutMs: number
  healthTimeoutMs: number
}

export interface Operated {
  operation: Operation
  /** whether the running service did it, or this process */
  by: 'service' | 'command'
}

/** how long a process must go on answering before a start counts as good */
const STABLE_MS = 1500

/** Carries the operation out and returns it with outcome updated, rolled_back or up_to_date. Everything else is thrown. */
export async function operate(receipt: Receipt, request: Operate, report: Report): Promise<Operated> {
  const supervisor = supervisorFor(receipt)
  const client = connect(await readAccess(receipt.configPath))
  // looked at again after every wait: whoever held the lock may have started the service, or stopped it
  const operated = await withPatience<Operated>(request.lockTimeoutMs, report, async () => {
    const status = await client.status()
    return status !== null
      ? { by: 'service', operation: await askService(client, status, request, report) }
      : { by: 'command', operation: await carryOutHere(receipt, supervisor, client, request, report) }
  })
  const { operation } = operated
  if (operation.outcome === 'updated' || operation.outcome === 'rolled_back' || operation.outcome === 'up_to_date')
    return operated
  throw failureOf(operation)
}

/** Reverted is always 8: whatever the reason was, the previous version is running. */
function failureOf({ outcome, error, to, from }: Operation): BatonError {
  const message = error?.message ?? `the operation ended as ${outcome ?? 'nothing'}`
  if (outcome === 'reverted') {
    const code: ErrorCode = error !== null && MEANINGS[error.code].exit === 8 ? error.code : 'restart_failed'
    return new BatonError(code, `${to ?? 'the release'} failed, ${from} is running again: ${message}`)
  }
  return new BatonError(error?.code ?? 'unexpected', message)
}

// ---- the running service

async function askService(client: Client, before: Status, request: Operate, report: Report): Promise<Operation> {
  let started: Operation
  try {
    started = request.kind === 'update' ? await client.update(request.tag) : await client.rollback()
  } catch (cause) {
    throw await explained(cause, client)
  }
  const operation = await follow(client, started.id, report)
  if (operation.to !== null && (operation.outcome === 'updated' || operation.outcome === 'rolled_back')) {
    report.stage('health')
    await waitForInstance(client, {
      tag: operation.to,
      notInstance: before.instance.id,
      timeoutMs: request.healthTimeoutMs,
    })
  }
  return operation
}

/** 409 says that there is an operation; who began it when is in the status. */
async function explained(cause: unknown, client: Client): Promise<unknown> {
  if (!(cause instanceof BatonError) || cause.code !== 'update_in_flight' || /since/.test(cause.message)) return cause
  const operation = (await client.status().catch(() => null))?.operation
  if (!operation) return cause
  return new BatonError(
    'update_in_flight',
    `the service is at it: ${operation.kind} ${operation.id} since ${operation.startedAt}`,
  )
}

/** Tries again while somebody else holds the lock: only what takes it ends with 6, and it has changed nothing then. */
async function withPatience<T>(timeoutMs: number, report: Report, work: () => Promise<T>): Promise<T> {
  const deadline = Date.now() + timeoutMs
  for (let told = false; ; told = true) {
    try {
      return await work()
    } catch (cause) {
      const held = cause instanceof BatonError && MEANINGS[cause.code].exit === 6
      if (!held || Date.now() > deadline) throw cause
      if (!told) report.note(`waiting: ${cause.message}`)
      await sleep(500)
    }
  }
}

// ---- nothing runs

async function carryOutHere(
  receipt: Receipt,
  supervisor: Supervisor,
  client: Client,
  request: Operate,
  report: Report,
): Promise<Operation> {
  const starts = receipt.options['start'] !== false
  return await asUser(receipt.user, async () => {
    const { service } = receipt
    await using feed = openFeed(await feedOf(receipt), { service, stateDirectory: receipt.stateDirectory })
    const install = await installOf(receipt, readByRoot(feed), report)
    const restart: Restart = async (to) => {
      if (!starts) return { open: true } // proves itself when somebody starts it
      try {
        await startAndGate(receipt, supervisor, client, to, request.healthTimeoutMs, report)
      } catch (cause) {
        await asRoot(() => supervisor.stop()).catch(() => {})
        throw cause
      }
      return {}
    }
    const { who, kind, tag } = request
    // under the lock: whoever held it a moment ago may have changed what is installed, and may be starting it
    const prepare = async () => {
      await asRoot(() => makeWay(receipt, supervisor, client))
      install.current = await installedOf(receipt)
    }
    const running = await begin(install, { kind, tag, who, refusal: 'locked', prepare }, restart)
    const timer = setInterval(() => {
      const { progress } = running.operation
      if (progress !== null && running.operation.stage === 'download') report.bytes(progress.bytes, progress.totalBytes)
    }, 100)
    const result = await running.done.finally(() => clearInterval(timer))
    const operation: Operation = { ...running.operation, outcome: running.operation.outcome ?? result.outcome }
    if (operation.outcome === 'reverted' && starts)
      await startAgain(receipt, supervisor, client, operation, request, report)
    if (result.placed !== null) await noteTag(install, result.placed)
    return operation
  })
}

/** A service that dies and is started again must not be in the way; one that runs is to do the work itself. */
async function makeWay({ service }: Receipt, supervisor: Supervisor, client: Client): Promise<void> {
  const state = await supervisor.state()
  if (!state.active) return
  if ((await client.status()) !== null) {
    throw new BatonError('locked', `${service} has been started meanwhile`, {
      hint: 'try again: it does the work itself',
    })
  }
  if (state.word === 'active') {
    throw new BatonError('refused', `${service} is running (${supervisor.description}) but does not answer`, {
      hint: `stop it first, then try again; \`${supervisor.logCommand}\` may say why`,
    })
  }
  await supervisor.stop()
}

/** The old executable is back: it must run, or the service is down. */
async function startAgain(
  receipt: Receipt,
  supervisor: Supervisor,
  client: Client,
  operation: Operation,
  request: Operate,
  report: Report,
): Promise<void> {
  try {
    await startAndGate(receipt, supervisor, client, operation.from, request.healthTimeoutMs, report)
  } catch (cause) {
    throw new BatonError(
      'service_down',
      `${operation.to ?? ''} failed, and ${operation.from} does not start either: ${reasonOf(cause)}`,
      {
        cause,
        hint: `\`${supervisor.logCommand}\` says why`,
      },
    )
  }
}

/** Version and instance, and it must go on: a service that dies a second after its start is not a good one. */
export async function startAndGate(
  receipt: Receipt,
  supervisor: Supervisor,
  client: Client,
  tag: string,
  timeoutMs: number,
  report: Report,
): Promise<Status> {
  report.stage('start')
  await asRoot(() => supervisor.start())
  report.stage('health')
  const first = await waitForInstance(client, { tag, timeoutMs })
  await sleep(STABLE_MS)
  const second = await waitForInstance(client, { tag, timeoutMs: 5000 })
  if (second.instance.id === first.instance.id) return second
  throw new BatonError('service_down', `${receipt.service} ${tag} answered, and has ended since`)
}

/** A folder in somebody's home is shown to the service by its unit; here only root may read it. Reading is all that is done. */
function readByRoot(feed: ManagedInstall['feed']): ManagedInstall['feed'] {
  return {
    ...feed,
    latest: (...args) => asRoot(() => feed.latest(...args)),
    byTag: (...args) => asRoot(() => feed.byTag(...args)),
    bytes: (...args) => asRoot(() => feed.bytes(...args)),
  }
}

async function installOf(receipt: Receipt, feed: ManagedInstall['feed'], report: Report): Promise<ManagedInstall> {
  const { service, executable, stateDirectory } = receipt
  const log = (event: LogEvent) => {
    if (event.event === 'operation') report.stage(event.stage)
    if (event.event === 'warning') report.note(`warning: ${event.message}`)
  }
  const [current, database] = [await installedOf(receipt), join(stateDirectory, `${service}.db`)]
  return openInstall({ service, executable, current, stateDirectory, database, feed, log })
}

async function installedOf({ executable, tag }: Receipt): Promise<string> {
  return await installedTag(executable).catch(() => tag)
}

/** The configuration's, where the operator has put one there; else the receipt's. */
export async function feedOf(receipt: Receipt): Promise<string> {
  try {
    const { feed } = JSON.parse(await readFile(receipt.configPath, 'utf8')) as { feed?: unknown }
    if (typeof feed === 'string' && feed !== '') return feed
  } catch {
    // `readAccess` has complained already
  }
  return receipt.feed
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms))
}
