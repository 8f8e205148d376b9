// Carries out the plan of a command: connects its steps with `Side`, the supervisor and the report.

import type { Receipt } from '../../../agent/install.ts'
import { BatonError, parsedJson, reasonOf } from '../../../agent/words.ts'
import { removeEmptyAs } from '../boundary/drop.ts'
import { isCrossing, type OpenSide, supervisorOf } from '../boundary/open.ts'
import { idOf } from '../place/identity.ts'
import { ownNode } from '../place/own.ts'
import { type Carrier, carryOut } from '../plan/apply.ts'
import type { Step } from '../plan/step.ts'
import type { Operate, Operated } from '../service/request.ts'
import type { CommandSupervisor } from '../supervisor/supervisor.ts'
import type { HostReport } from '../report.ts'
import type { Context } from './context.ts'

const SAY_MS = 5000
const STILL_ENDING =
  'the service is waiting for work and open requests to finish: up to `drainTimeout` for work, 1.5 times that for requests'

export interface Deed {
  /** for the lock, and messages: `shop upgrade` */
  who: string
  open(): Promise<OpenSide>
  /** ends everything that root has started as the service's user */
  end?(): Promise<void>
  receipt(): Promise<Receipt>
}

/** Carries the steps out; resolves to the result of the operation among them, if any. Throws unless it succeeds. */
export async function carryOutSteps(context: Context, steps: readonly Step[], deed: Deed): Promise<Done> {
  const { report, flags } = context
  const done: Done = { operated: null, left: [] }
  const side = async () => (await deed.open()).side
  const supervisor = async () => supervisorOf(await deed.receipt(), await side())
  const run = async (request: Pick<Operate, 'kind' | 'tag'>) => {
    const whole = requestFor(context, deed.who, request)
    done.operated = await (await side()).operate({ receipt: await deed.receipt(), request: whole })
    assertGood(done.operated)
  }
  const { unpack, prepareStart } = makeReady(deed, report)
  const carrier: Carrier = {
    who: deed.who,
    leaveSide: async () => {
      await (await deed.open())[Symbol.asyncDispose]()
      await deed.end?.()
    },
    async removeEmpty(path) {
      const receipt = await deed.receipt()
      if (await isCrossing(receipt)) await removeEmptyAs(await idOf(receipt.user), path)
      else await (await side()).removeDirectory(path)
    },
    say: (step) => report.step(step),
    side,
    unpack,
    start: async () => {
      await prepareStart()
      await (await supervisor()).start()
    },
    restart: async () => {
      await prepareStart()
      await toldOf(await supervisor(), report, 'restart')
    },
    stop: async () => await toldOf(await supervisor(), report, 'stop'),
    update: (tag) => run({ kind: 'update', tag }),
    rollback: (tag) => run({ kind: 'rollback', tag }),
    left: (paths) => void done.left.push(...paths),
    async waitHealthy(tag) {
      const receipt = await deed.receipt()
      try {
        await (await side()).waitHealthy({ receipt, tag, timeoutMs: flags.healthTimeoutMs })
      } catch (cause) {
        const own = cause instanceof BatonError ? cause.hint : null
        const hint = own ?? `run \`${(await supervisor()).logCommand}\` to see why`
        throw new BatonError('service_down', reasonOf(cause), { cause, hint })
      }
    },
  }
  try {
    await carryOut(steps, carrier)
  } catch (cause) {
    // what an undo could not remove
    for (const path of done.left) report.note(`kept: ${path}`)
    throw cause
  }
  return done
}

/** Unpacking ten thousand files may take longer than a start may. A script, which a `node` runs, unpacks nothing. */
function makeReady({ open, receipt }: Deed, report: HostReport) {
  let unpacked: string | null = null
  const unpack = async (path: string, node: string | null) => {
    if (node !== null || unpacked === path) return
    report.stage('unpack')
    await (await open()).side.unpack({ path })
    unpacked = path
  }
  const prepareStart = async () => {
    const { executable, node = null } = await receipt()
    await unpack(executable, node)
    report.stage('start')
  }
  return { unpack: (path: string) => unpack(path, ownNode()), prepareStart }
}

/** Stops or restarts the service. Says after a while what it waits for: a person would take that for a fault. */
async function toldOf(supervisor: CommandSupervisor, report: HostReport, verb: 'stop' | 'restart'): Promise<void> {
  const { mainPid } = await supervisor.state()
  const look = async () => {
    if (mainPid !== null && (await supervisor.state()).mainPid === mainPid) report.note(STILL_ENDING)
  }
  const timer = setTimeout(() => void look().catch(() => {}), SAY_MS)
  try {
    await supervisor[verb]()
  } finally {
    clearTimeout(timer)
  }
}

/** What a result says if nothing has moved to another release. */
export const NOTHING = { from: null, to: null, operationId: null, operation: null }

/** The end of a dry run. */
export function foretold(
  { report }: Context,
  title: string,
  steps: readonly Step[],
  end: Record<string, unknown>,
  lines: readonly string[] = [],
): number {
  report.note(`${title}, dry run`)
  report.plan(steps)
  return report.result({ outcome: 'planned', ...end }, lines)
}

export interface Done {
  operated: Operated | null
  /** paths that could not be removed, with the reason if it is known */
  left: string[]
}

export function requestFor({ flags }: Context, who: string, request: Pick<Operate, 'kind' | 'tag'>): Operate {
  const { allowIrreversible, restoreState, now, rehearse, lockTimeoutMs, healthTimeoutMs, healthUrl } = flags
  return { ...request, allowIrreversible, restoreState, now, rehearse, who, lockTimeoutMs, healthTimeoutMs, healthUrl }
}

/** Throws the error of an operation that did not succeed. Its members say how far the operation came. */
export function assertGood({ outcome, from, to, report, error }: Operated): void {
  if (error === null) return
  throw new BatonError(error.code, error.message, {
    ...(error.hint === null ? {} : { hint: error.hint }),
    members: { outcome, from, to, operationId: report?.id ?? null, operation: JSON.stringify(report) },
  })
}

/** The members of an error that a command ends with, for `--json`. */
export function endOf({ members }: BatonError): Record<string, unknown> {
  const { outcome = null, from = null, to = null, operationId = null, operation } = members
  // the text comes from the worker, which may send anything
  return { outcome, from, to, operationId, operation: parsedJson(String(operation)) ?? null }
}
