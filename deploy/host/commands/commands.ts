// The commands of contract 2, one function each. Each looks at the host, makes a plan, and (unless it is a dry run) carries
// that very plan out. They return an exit code; what goes wrong is thrown.

import { spawn } from 'node:child_process'
import { closeSync, openSync, readSync, writeSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import { isSea } from 'node:sea'
import { join } from 'node:path'
import { installedTag, openFeed, readReceipt, type Receipt, rescue, sha256OfFile } from '../../../agent/install.ts'
import {
  asBatonError,
  BatonError,
  compareTags,
  EXIT,
  MEANINGS,
  type Operation,
  parseTag,
  reasonOf,
} from '../../../agent/words.ts'
import { carryOut, type Carrier } from '../plan/apply.ts'
import {
  choose,
  type Choices,
  type Environment,
  fromEnvironment,
  fromReceipt,
  parseRelease,
  type Said,
} from '../place/choices.ts'
import { connect, readAccess } from '../service/client.ts'
import { ALL_CHECKS, examine, type Finding, PLACE_CHECKS, worstOf } from '../doctor/doctor.ts'
import { candidatesFor, findReceipt, gatherFacts, layoutOfReceipt, personOf } from '../plan/facts.ts'
import { isRoot } from '../place/identity.ts'
import { type Layout, layoutOf } from '../place/layout.ts'
import { feedOf, operate, startAndGate } from '../service/operate.ts'
import { planInstall, planStart, planUninstall, type Step } from '../plan/plan.ts'
import type { Report } from '../report.ts'
import { supervise } from '../supervisor/supervise.ts'
import { supervisorFor } from '../supervisor/supervisor.ts'

export interface Flags {
  said: Said
  release: string | null
  dryRun: boolean
  yes: boolean
  /** name typed in place of an answer, for `uninstall --purge` */
  confirm: string | null
  purge: boolean
  healthUrl: string | null
  lockTimeoutMs: number
  healthTimeoutMs: number
}

export interface Context {
  service: string
  /** tag of the executable that runs this */
  tag: string
  flags: Flags
  environment: Environment
  report: Report
}

export async function install(context: Context, argv: readonly string[]): Promise<number> {
  const { service, flags, report, environment } = context
  // from source there is no executable here: install.sh gets one and comes back with it
  if (!isSea()) return await handToScript(argv)
  const { said, release: fromVariable } = fromEnvironment(service, environment)
  const wanted = parseRelease(flags.release ?? fromVariable)
  const person = personOf(environment)
  const scope = flags.said.scope ?? said.scope ?? null
  const prefix = flags.said.prefix ?? said.prefix ?? null
  const existing = await findReceipt(service, candidatesFor(service, scope, prefix, person, null))
  const remembered: Said =
    existing === null ? {} : { ...fromReceipt(existing.options), scope: existing.scope, feed: existing.feed }
  const chosen = choose(flags.said, said, remembered, defaultsFrom(environment))
  const layout = layoutOf(service, chosen.choices, person)
  const own = { path: process.execPath, tag: context.tag, sha256: await sha256OfFile(process.execPath) }
  if (wanted !== null && wanted !== own.tag) {
    throw new BatonError('refused', `this executable is ${own.tag}, not ${wanted}`, {
      hint: '`install.sh --release` fetches the right one',
    })
  }
  const { size } = await stat(own.path)
  const patient = {
    layout,
    receipt: await readReceipt(layout.executable),
    feed: chosen.choices.feed,
    executableBytes: size,
    withUnit: chosen.choices.service,
  }
  const problem = worstOf(await examine(patient, PLACE_CHECKS))
  if (problem !== null) throw problem
  const facts = await gatherFacts(layout, chosen.choices.service)
  const fresh = facts.receipt === null
  if (fresh && chosen.choices.feed === '')
    throw new BatonError('invalid_settings', 'no feed is named', { hint: 'name one with `--feed`' })
  const steps = planInstall({ layout, chosen, facts, own, explicit: wanted !== null })
  const title = `${service} ${own.tag} for ${layout.scope === 'system' ? 'this host' : person.name}`
  if (await isOver(context, title, steps, 'install')) return EXIT.done
  const { carrier, operation } = carrierFor(context, 'install.sh install', () => receiptAt(layout))
  await carryOut(steps, carrier)
  const tag = operation()?.to ?? (fresh ? own.tag : (facts.receipt?.tag ?? own.tag))
  const running = chosen.choices.start
  const lines = [`${service} ${tag} is ${running ? 'installed and running' : 'installed'}`]
  if (fresh && !facts.configExists) lines.push(`the password of the panel and the endpoints is in ${layout.configPath}`)
  if (fresh && !(environment['PATH'] ?? '').split(':').includes(join(layout.command, '..')))
    lines.push(`the command is ${layout.command}`)
  report.result(
    {
      outcome: 'installed',
      tag,
      executable: layout.executable,
      configPath: layout.configPath,
      stateDirectory: layout.stateDirectory,
      command: layout.command,
      running,
      exit: EXIT.done,
    },
    lines,
  )
  return EXIT.done
}

export async function upgrade(context: Context): Promise<number> {
  const { said, release } = fromEnvironment(context.service, context.environment)
  const tag = parseRelease(context.flags.release ?? release)
  const receipt = await locate(context, said)
  return await runOperation(context, receipt, { do: 'update', service: context.service, to: tag }, 'install.sh upgrade')
}

/** Without a tag the backup executable comes back; with one that release is fetched, as an upgrade would. */
export async function rollback(context: Context, tag: string | null): Promise<number> {
  const { service } = context
  const step: RunStep = tag === null ? { do: 'rollback', service } : { do: 'update', service, to: parseTag(tag) }
  const receipt = await locate(context)
  return await runOperation(context, receipt, step, 'install.sh rollback')
}

export async function uninstall(context: Context): Promise<number> {
  const { service, flags, report, environment } = context
  const receipt = await locate(context)
  const layout = layoutOfReceipt(receipt, personOf(environment))
  assertRights(layout)
  const facts = await gatherFacts(layout, receipt.supervisor !== 'none')
  const steps = planUninstall(layout, receipt, facts, flags.purge)
  if (flags.purge && !flags.dryRun) confirmPurge(context)
  if (await isOver(context, `${service} ${receipt.tag} in ${layout.directory} is removed`, steps, 'uninstall'))
    return EXIT.done
  const { carrier } = carrierFor(context, 'install.sh uninstall', async () => receipt)
  await carryOut(steps, carrier)
  const kept = flags.purge ? [] : [layout.stateDirectory, layout.configDirectory]
  const lines = [`${service} is uninstalled`, ...kept.map((path) => `kept: ${path}`)]
  report.result({ outcome: 'uninstalled', kept, exit: EXIT.done }, lines)
  return EXIT.done
}

export async function start(context: Context): Promise<number> {
  const { service, report } = context
  const receipt = await locate(context)
  if ((await supervisorFor(receipt).state()).active) {
    report.result({ outcome: 'running', exit: EXIT.done }, [`${service} is running`])
    return EXIT.done
  }
  const tag = await installedTag(receipt.executable)
  const steps = planStart(layoutOfReceipt(receipt, personOf(context.environment)), tag)
  if (await isOver(context, `${service} ${tag}`, steps, null)) return EXIT.done
  await carryOut(steps, carrierFor(context, 'install.sh start', async () => receipt).carrier)
  report.result({ outcome: 'running', tag, exit: EXIT.done }, [`${service} ${tag} is running`])
  return EXIT.done
}

export async function stop(context: Context): Promise<number> {
  const { service, report } = context
  const receipt = await locate(context)
  const steps: Step[] = [{ do: 'stop', service }]
  if (await isOver(context, service, steps, null)) return EXIT.done
  await carryOut(steps, carrierFor(context, 'install.sh stop', async () => receipt).carrier)
  report.result({ outcome: 'stopped', exit: EXIT.done }, [`${service} is stopped`])
  return EXIT.done
}

export async function status(context: Context): Promise<number> {
  const { service, report } = context
  const receipt = await locate(context)
  const supervisor = supervisorFor(receipt)
  const [state, access] = await Promise.all([supervisor.state(), readAccess(receipt.configPath)])
  const client = connect(access)
  const [now, installed] = [await client.status(), await installedTag(receipt.executable).catch(() => null)]
  const report0 = now === null ? null : await client.check().catch(() => null)
  const offline = report0 === null ? await latestOffline(receipt) : null
  const latest = report0?.latest ?? offline?.latest ?? null
  const problem = report0?.problem?.message ?? offline?.problem ?? null
  const running = now?.instance.version ?? null
  const updateAvailable = latest !== null && compareTags(latest, running ?? installed ?? receipt.tag) > 0
  const backup = now?.backup ?? (await installedTag(`${receipt.executable}.backup`).catch(() => null))
  const down = now === null && receipt.options['start'] !== false
  const exit = down ? EXIT.down : EXIT.done
  const { executable, stateDirectory, configPath } = receipt
  const lines = [
    now === null
      ? `${service} does not answer (${supervisor.description}: ${state.word})`
      : `${service} ${running ?? ''} is running, pid ${now.instance.pid}, since ${now.instance.startedAt} (${supervisor.description})`,
    `installed  ${installed ?? 'does not run'}  ${executable}`,
    `backup     ${backup ?? 'none'}`,
    `latest     ${latest ?? `unknown: ${problem ?? 'the feed has no release'}`}${updateAvailable ? ', `upgrade` installs it' : ''}`,
    `state      ${stateDirectory}`,
    ...(now?.operation ? [`last       ${lastLine(now.operation)}`] : []),
  ]
  const object = {
    service,
    installed,
    running,
    latest,
    updateAvailable,
    problem,
    backup,
    supervisor: { description: supervisor.description, ...state },
    instance: now?.instance ?? null,
    operation: now?.operation ?? null,
    executable,
    stateDirectory,
    configPath,
    feed: await feedOf(receipt),
    exit,
  }
  report.result(object, lines)
  return exit
}

export async function doctor(context: Context): Promise<number> {
  const { service, environment, flags, report } = context
  const person = personOf(environment)
  const { said } = fromEnvironment(service, environment)
  const receipt = await findReceipt(service, candidatesOf(context, said))
  const chosen = choose(
    flags.said,
    said,
    receipt === null ? {} : { scope: receipt.scope, feed: receipt.feed },
    defaultsFrom(environment),
  )
  const layout = receipt === null ? layoutOf(service, chosen.choices, person) : layoutOfReceipt(receipt, person)
  const executableBytes = (await stat(receipt?.executable ?? process.execPath).catch(() => null))?.size ?? 0
  const withUnit = receipt === null ? chosen.choices.service : receipt.supervisor !== 'none'
  const findings = await examine(
    { layout, receipt, feed: chosen.choices.feed || null, executableBytes, withUnit },
    ALL_CHECKS,
  )
  const worst = worstOf(findings)
  const exit = worst === null ? EXIT.done : MEANINGS[worst.code].exit
  report.result({ findings, exit }, findings.flatMap(linesOf))
  return exit
}

/** For `ExecStopPost=`, `OnFailure=` and our own supervision. 0 only where the backup executable was put back. */
export async function rescueHere({ environment, report }: Context, givenUp: boolean): Promise<number> {
  const receipt = await readReceipt(process.execPath)
  if (receipt === null) throw new BatonError('not_managed', `there is no receipt beside ${process.execPath}`)
  // systemd.exec(5): what ExecStopPost= is told about the end of the service
  const result = environment['SERVICE_RESULT'] ?? 'failure'
  const failed = result !== 'success'
  const reason = givenUp
    ? 'given up'
    : [result, environment['EXIT_CODE'], environment['EXIT_STATUS']].filter(Boolean).join(' ')
  let did = await rescue(receipt, { failed, reason })
  // nobody is going to start it again, so there is no second failure to wait for
  if (did.did === 'counted' && givenUp) did = await rescue(receipt, { failed, reason })
  if (did.did === 'reverted') {
    report.result({ ...did, exit: EXIT.done }, [`${did.from} failed, ${did.to} is back`])
    return EXIT.done
  }
  const line =
    did.did === 'counted'
      ? `${receipt.service} failed in probation, ${did.failures} of 2`
      : `nothing to rescue: ${did.why}`
  report.result({ ...did, exit: EXIT.refused }, did.did === 'nothing' && !failed ? [] : [line])
  return EXIT.refused
}

export async function superviseHere(): Promise<number> {
  const receipt = await readReceipt(process.execPath)
  if (receipt === null) throw new BatonError('not_managed', `there is no receipt beside ${process.execPath}`)
  return await supervise(receipt)
}

// ---- parts

type RunStep = Extract<Step, { do: 'update' | 'rollback' }>

async function runOperation(context: Context, receipt: Receipt, step: RunStep, who: string): Promise<number> {
  const { service, report, flags } = context
  if (await isOver(context, `${service} in ${receipt.executable}`, [step], null)) return EXIT.done
  if (flags.dryRun) return EXIT.done
  const { carrier, operation } = carrierFor(context, who, async () => receipt)
  await carryOut([step], carrier)
  const done = operation()
  if (done === null) throw new BatonError('unexpected', 'the operation has no outcome')
  const { outcome, from, to, handover } = done
  const moved = handover === null ? '' : `, ${handover.moved} connections moved, ${handover.cut} cut`
  const line =
    outcome === 'up_to_date'
      ? `${service} ${from} is up to date`
      : `${service} ${to ?? ''} is in place, it was ${from}${moved}`
  report.result({ outcome, from, to, operation: done, exit: EXIT.done }, [line])
  return EXIT.done
}

function carrierFor(
  context: Context,
  who: string,
  receiptOf: () => Promise<Receipt>,
): { carrier: Carrier; operation: () => Operation | null } {
  const { report, flags } = context
  let operation: Operation | null = null
  const run = async (kind: 'update' | 'rollback', tag: string | null) => {
    const { lockTimeoutMs, healthTimeoutMs } = flags
    operation = (await operate(await receiptOf(), { kind, tag, who, lockTimeoutMs, healthTimeoutMs }, report)).operation
  }
  const carrier: Carrier = {
    who,
    say: (step) => report.step(step),
    start: async () => await supervisorFor(await receiptOf()).start(),
    stop: async () => await supervisorFor(await receiptOf()).stop(),
    update: (to) => run('update', to),
    rollback: () => run('rollback', null),
    async waitHealthy(tag) {
      const receipt = await receiptOf()
      const supervisor = supervisorFor(receipt)
      try {
        await startAndGate(
          receipt,
          { ...supervisor, start: async () => {} },
          connect(await readAccess(receipt.configPath)),
          tag,
          flags.healthTimeoutMs,
          { ...report, stage: () => {} },
        )
      } catch (cause) {
        throw new BatonError('service_down', reasonOf(cause), { cause, hint: `\`${supervisor.logCommand}\` says why` })
      }
    },
  }
  return { carrier, operation: () => operation }
}

/** True where there is nothing to carry out: a dry run, or an empty plan. Asks where `asking` names what is done. */
async function isOver(
  { flags, report }: Context,
  title: string,
  steps: readonly Step[],
  asking: string | null,
): Promise<boolean> {
  if (flags.dryRun) {
    report.note(`${title}, dry run`)
    report.plan(steps)
    report.result({ outcome: 'planned', exit: EXIT.done }, [])
    return true
  }
  if (steps.length === 0) {
    report.result({ outcome: 'up_to_date', exit: EXIT.done }, [`${title}: nothing to do`])
    return true
  }
  if (asking === null || flags.yes) return false
  report.note(title)
  report.plan(steps)
  const answer = askTerminal('Go on? [y/N] ')
  if (answer === null)
    throw new BatonError('refused', `nobody to ask: there is no terminal`, { hint: `\`${asking} -y\` does not ask` })
  if (!/^y(es)?$/i.test(answer)) throw new BatonError('refused', 'not confirmed, nothing was changed')
  return false
}

function confirmPurge({ service, flags }: Context): void {
  const typed = flags.confirm ?? askTerminal(`This removes the database of ${service}. Type its name to go on: `)
  if (typed === service) return
  throw new BatonError(
    'refused',
    typed === null ? 'nobody to ask: there is no terminal' : `expected the name ${service}, nothing was changed`,
    {
      hint: `\`uninstall --purge --confirm ${service}\` names it`,
    },
  )
}

/** Under `curl … | sh` the script is on stdin; the person is at /dev/tty. */
function askTerminal(question: string): string | null {
  let fd: number
  try {
    fd = openSync('/dev/tty', 'r+')
  } catch {
    return null
  }
  try {
    writeSync(fd, question)
    const bytes = Buffer.alloc(256)
    return bytes.subarray(0, readSync(fd, bytes)).toString().trim()
  } catch {
    return null
  } finally {
    closeSync(fd)
  }
}

async function locate(context: Context, said?: Said): Promise<Receipt> {
  const { service } = context
  const receipt = await findReceipt(
    service,
    candidatesOf(context, said ?? fromEnvironment(service, context.environment).said),
  )
  if (receipt !== null) return receipt
  throw new BatonError('refused', `expected an install of ${service} on this host, found none`, {
    hint: '`install.sh` makes one',
  })
}

function candidatesOf({ service, flags, environment }: Context, said: Said): string[] {
  const scope = flags.said.scope ?? said.scope ?? null
  const prefix = flags.said.prefix ?? said.prefix ?? null
  // a backup executable runs commands too; the receipt beside it names the other one
  const own = isSea() ? process.execPath.replace(/\.backup$/, '') : null
  return candidatesFor(service, scope, prefix, personOf(environment), own)
}

async function receiptAt(layout: Layout): Promise<Receipt> {
  const receipt = await readReceipt(layout.executable)
  if (receipt === null) throw new BatonError('unexpected', `expected a receipt beside ${layout.executable}, found none`)
  return receipt
}

function defaultsFrom(environment: Environment): Choices {
  return {
    scope: isRoot() ? 'system' : 'user',
    prefix: null,
    'state-dir': null,
    feed: environment['BATON_DEFAULT_FEED'] ?? '',
    listen: '127.0.0.1:8080',
    'run-as': null,
    service: true,
    start: true,
  }
}

function assertRights(layout: Layout): void {
  if (layout.scope !== 'system' || isRoot()) return
  throw new BatonError('refused', 'expected to run as root for an install of the whole host', { hint: 'use sudo' })
}

async function latestOffline(receipt: Receipt): Promise<{ latest: string | null; problem: string | null }> {
  try {
    await using feed = openFeed(await feedOf(receipt), { service: receipt.service, stateDirectory: null })
    return { latest: (await feed.latest(() => false))?.tag ?? null, problem: null }
  } catch (cause) {
    return { latest: null, problem: asBatonError(cause, 'check_failed', 'asking the feed').message }
  }
}

function lastLine({ kind, from, to, outcome, finishedAt, stage, error }: Operation): string {
  const what = `${kind} ${from} to ${to ?? 'the latest release'}`
  if (outcome === null) return `${what}: in the ${stage} stage`
  return `${what}: ${outcome}${finishedAt === null ? '' : ` at ${finishedAt}`}${error === null ? '' : ` (${error.message})`}`
}

function linesOf({ level, check, message, hint }: Finding): string[] {
  const line = `${level.padEnd(8)} ${check.padEnd(14)} ${message}`
  return hint === null || level === 'ok' ? [line] : [line, `         ${' '.repeat(14)} hint: ${hint}`]
}

async function handToScript(argv: readonly string[]): Promise<number> {
  const script = join(import.meta.dirname, '../../../install.sh')
  const child = spawn('/bin/sh', [script, 'install', ...argv], { stdio: 'inherit' })
  return await new Promise<number>((resolve, reject) => {
    child.once('error', reject)
    child.once('exit', (code) => resolve(code ?? EXIT.unexpected))
  })
}
