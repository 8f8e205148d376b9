// `install`: makes an install on this host, or changes one.

import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import {
  COMMAND,
  doneAs,
  makeDisk,
  makeDownload,
  makeVerify,
  openFeed,
  ownRelease,
  ownWords,
  type Receipt,
  sha256OfFile,
} from '../../../agent/install.ts'
import {
  badEntry,
  type BadRelease,
  BatonError,
  compareTags,
  isDone,
  type Release,
  type Skip,
  wishesOf,
} from '../../../agent/words.ts'
import { runInPlace } from '../../lib/shell.ts'
import { temporaryFolder } from '../../lib/trusted.ts'
import { formatPause } from '../../lib/switch.ts'
import { endCommands, type OpenSide, openSide } from '../boundary/open.ts'
import { HOST_CHECKS, ROOM_CHECKS, runChecks } from '../doctor/doctor.ts'
import { type Subject, worstOf } from '../doctor/finding.ts'
import { checkGiven } from '../doctor/places.ts'
import {
  type Chosen,
  choose,
  fromEnvironment,
  fromReceipt,
  parseRelease,
  type Said,
  type Scope,
} from '../place/choices.ts'
import { findId, isRoot } from '../place/identity.ts'
import { type Layout, layoutOf } from '../place/layout.ts'
import { isFromSource, ownFile, ownNode, ownUnpackedBytes } from '../place/own.ts'
import { isOpenBeyond, refuseTaken } from '../place/port.ts'
import { earlierChoices, gatherFacts, receiptOf } from '../plan/facts.ts'
import type { Facts, Own } from '../plan/found.ts'
import { planInstall } from '../plan/install.ts'
import type { Step } from '../plan/step.ts'
import { formatPassed } from '../service/advice.ts'
import { confirm, type Context, deadlineOf, defaultsFrom, find, handToScript, ownerOf, personOf } from './context.ts'
import { carryOutSteps, type Done, foretold, NOTHING } from './deeds.ts'

const WHO = 'install.sh install'

export async function install(context: Context, argv: readonly string[]): Promise<number> {
  if (isFromSource()) return await handToScript(context, argv)
  const { service, flags, report, environment, tag } = context
  const set = fromEnvironment(service, environment)
  const asked = flags.release ?? set.release
  const wanted = parseRelease(asked)
  const { chosen, layout } = await chooseFor(context)
  const owner = ownerOf(layout, chosen.choices.feed, chosen.choices.service)
  let side: OpenSide | null = null
  const open = async () => (side ??= await openSide(owner, report, environment, deadlineOf(context, true)))
  try {
    const withUser = layout.scope === 'user' || (await findId(layout.user)) !== null
    const failed = async () =>
      withUser
        ? await (await open()).side.failed({ stateDirectory: layout.stateDirectory, configPath: layout.configPath })
        : []
    const other = await installOther(context, { feed: chosen.choices.feed, release: asked, failed }, argv)
    if (other !== null) return other
    await assertPlace(layout, chosen, await receiptOf(layout), withUser ? open : null)
    const receipt = await receiptOf(layout)
    const { basePath } = ownRelease()
    const own: Own = { path: ownFile(), tag, sha256: await sha256OfFile(ownFile()), basePath }
    const facts = await gatherFacts(layout, receipt, chosen.choices.service, withUser ? await open() : null)
    if (receipt === null && chosen.choices.feed === '')
      throw new BatonError('invalid_settings', 'no feed is specified', { hint: 'specify one with `--feed`' })
    if (receipt === null && !facts.configExists && chosen.choices.start) await refuseTaken(chosen.choices.listen)
    const steps = planInstall({ layout, chosen, facts, own, explicit: wanted !== null })
    const title = `${service} ${tag} for ${layout.scope === 'system' ? 'this host' : layout.user}`
    if (flags.dryRun) return foretold(context, title, steps, endForetold(steps, facts, own))
    if (steps.length === 0) {
      const { installed: at } = facts
      return report.result({ ...NOTHING, outcome: 'up_to_date', from: at, to: at }, [`${title}: nothing to do`])
    }
    confirm({ ...context, flags: { ...flags, acceptUnit: flags.acceptUnit || set.acceptUnit } }, title, steps, WHO)
    const done = await carryOutSteps(context, steps, {
      who: WHO,
      open,
      end: () => endCommands(layout),
      receipt: () => receiptAt(layout),
    })
    return await told(context, { layout, facts, own, chosen, done })
  } finally {
    await (side as OpenSide | null)?.[Symbol.asyncDispose]()
  }
}

/** Flags beat environment beat receipt (without one: an earlier installer's unit) beat defaults. */
async function chooseFor(context: Context): Promise<{ chosen: Chosen; layout: Layout }> {
  const { service, flags, environment } = context
  const { said } = fromEnvironment(service, environment)
  const existing = (await find({ ...context, flags: { ...flags, said: { ...flags.said } } }))?.receipt ?? null
  const scope = flags.said.scope ?? said.scope ?? (isRoot() ? 'system' : 'user')
  const remembered: Said =
    existing === null
      ? scope === 'system'
        ? await earlierChoices(service)
        : {}
      : { ...fromReceipt(existing.options), scope: existing.scope, feed: existing.feed }
  const chosen = choose(flags.said, said, remembered, defaultsFrom(environment))
  const isForHost = chosen.choices.scope === 'system' && chosen.choices.service
  const asks = isForHost ? wishesOf(ownRelease().unit, service) : null
  return { chosen, layout: { ...layoutOf(service, chosen.choices, personOf(environment)), asks, node: nodeFor(scope) } }
}

/** Checks the Node of a script before anything is changed; null if the executable brings its own. */
function nodeFor(scope: Scope): string | null {
  const node = ownNode()
  if (node === null) return null
  const refuse = (why: string, hint: string) => new BatonError('unsupported_host', why, { hint })
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
  if (major < 26 || (major === 26 && minor < 1))
    throw refuse(
      `expected Node 26.1 or later to run this script, got ${process.version}`,
      'set BATON_NODE to the path of another Node',
    )
  if (!/^\/[A-Za-z0-9@._+/-]+$/.test(node))
    throw refuse(
      `expected a plain path to Node (letters, digits and @._+-), got ${node}`,
      'set BATON_NODE to the path of another Node',
    )
  // the unit hides the homes, and the service's user has no access to them
  if (scope === 'system' && /^\/(home|root|run\/user)\//.test(node))
    throw refuse(
      `expected a Node that a system-wide service can run, got ${node}`,
      'install Node outside home folders, such as in /usr/local',
    )
  return node
}

/** Throws the first problem that would make the install fail, before anything is changed. */
async function assertPlace(
  layout: Layout,
  chosen: Chosen,
  receipt: Receipt | null,
  open: (() => Promise<OpenSide>) | null,
): Promise<void> {
  const { feed, service: withUnit } = chosen.choices
  const { size: executableBytes } = await stat(ownFile())
  const unpackedBytes = ownUnpackedBytes()
  const subject: Subject = { layout, receipt: null, feed, executableBytes, unpackedBytes, withUnit, given: [] }
  const stop = (problem: BatonError | null) => {
    if (problem !== null) throw problem
  }
  stop(worstOf(await runChecks(subject, HOST_CHECKS)))
  const isRoots = isRoot() && layout.scope === 'system'
  const { findings, given } = isRoots ? await checkGiven(layout) : { findings: [], given: [] }
  stop(worstOf(findings))
  const whole: Subject = { ...subject, receipt, given }
  if (open !== null) stop(worstOf(await (await open()).side.examine({ subject: whole, checks: 'place' })))
  else stop(worstOf(await runChecks(whole, ROOM_CHECKS)))
}

function endForetold(steps: readonly Step[], facts: Facts, own: Own) {
  const update = steps.find((step) => step.do === 'update')
  const done = update === undefined ? 'installed' : doneAs({ kind: 'update', from: update.from ?? '', to: update.to })
  const would = steps.length === 0 ? 'up_to_date' : done
  const to = update !== undefined || facts.installed === null ? own.tag : facts.installed
  return { would, from: facts.installed, to, operationId: null }
}

async function told(
  { report, service, environment }: Context,
  { layout, facts, own, chosen, done }: { layout: Layout; facts: Facts; own: Own; chosen: Chosen; done: Done },
): Promise<number> {
  const { operated } = done
  const fresh = facts.receipt === null
  const to = operated?.to ?? facts.installed ?? own.tag
  const running = chosen.choices.start
  const pause = formatPause(operated?.report ?? {})
  const end = pause === null ? '' : `; ${pause}`
  const status = `\`${service} ${ownWords('status')}\``
  const notes = fresh
    ? [`the service's data is in ${layout.stateDirectory}; to check on the service, run ${status}`]
    : []
  if (fresh && !facts.configExists)
    notes.push(
      `the panel is at ${ownRelease().scheme ?? 'http'}://${chosen.choices.listen}${own.basePath}/web/settings.html`,
      `the password for the panel and the API is \`dashboard.password\` in ${layout.configPath}`,
      'the service checks the feed for a new release four times a day but does not install it automatically; to change that, set `update.auto.mode` in the configuration',
    )
  if (fresh && running && !facts.configExists && (await isOpenBeyond(chosen.choices.listen)))
    notes.push(
      `warning: the application ignores the address ${chosen.choices.listen}, and its port is open on every address of this host; for advice, run \`${service} ${ownWords('doctor')}\``,
    )
  // root's commands are about the whole host, unless they say otherwise
  const isRootsOwn = isRoot() && layout.scope === 'user'
  if (fresh && (isRootsOwn || !(environment['PATH'] ?? '').split(':').includes(join(layout.command, '..'))))
    notes.push(`the service's command is ${layout.command}`)
  return report.result(
    {
      outcome: operated !== null && isDone(operated.outcome) ? operated.outcome : 'installed',
      from: facts.installed,
      to,
      tag: to,
      operationId: operated?.report?.id ?? null,
      operation: operated?.report ?? null,
      executable: layout.executable,
      configPath: layout.configPath,
      stateDirectory: layout.stateDirectory,
      command: layout.command,
      running,
      ...(fresh ? { notes } : {}),
    },
    [`${service} ${to} is ${running ? 'installed and running' : 'installed'}${end}`, ...notes],
  )
}

async function receiptAt(layout: Layout): Promise<Receipt> {
  const receipt = await receiptOf(layout)
  if (receipt === null)
    throw new BatonError(
      'unexpected',
      `expected ${layout.receipt}, which the install just wrote, but it does not exist`,
    )
  return receipt
}

type Feed = ReturnType<typeof openFeed>

/** the tag that the program which started this one found to be the latest; this one does not look again */
const FOUND = 'BATON_FOUND_LATEST'

/**
 * Installs another release than this program's: install.sh fetches only the release whose checksum it holds, so this program finds, verifies
 * and runs a newer one, or one named by its tag, from a folder that only the user of this command can write in. It trusts the root keys that
 * it was built with. Null if this program's own release was asked for; else the exit code of the other one. `feed`: where to look
 * for it. `failed`: the releases that failed on this host, which are never the latest.
 */
async function installOther(
  context: Context,
  { feed, release, failed }: { feed: string; release: string | null; failed: () => Promise<BadRelease[]> },
  argv: readonly string[],
): Promise<number | null> {
  const { service, tag, environment, report } = context
  // if no release is named, install the one that install.sh came with
  if (release === null || release === tag || (release === 'latest' && environment[FOUND] === tag)) return null
  await using open = openFeed(feed, { service, stateDirectory: null })
  report.stage('check')
  const bad = release === 'latest' ? await failed() : []
  const skip: Skip = ({ tag: one, asset }) => badEntry(bad, one, asset.sha256) !== null
  const found = release === 'latest' ? await newestOf(open, skip) : await open.byTag(release)
  const isBad = badEntry(bad, tag, null) !== null
  if (found === null)
    throw new BatonError(
      'release_not_found',
      `${feed} has no release${bad.length === 0 ? '' : ' that did not fail here'}`,
    )
  for (const one of bad.filter((entry) => compareTags(entry.tag, found.tag) > 0))
    report.note(formatPassed(one, 'install'))
  if (release === 'latest' && compareTags(found.tag, tag) <= 0 && !isBad) return null // never downgrade: a mirror may lag
  // the service's user reads it during the install
  await using folder = await temporaryFolder(`${service}-install.`, 0o755)
  const path = join(folder.path, service)
  await fetchTo(path, found, open, context)
  report.leave()
  const env = { ...environment, [FOUND]: found.tag, BATON_DEFAULT_FEED: feed, [COMMAND]: '1' }
  // a terminal signals both processes; this one must outlive the other, to remove the folder
  return await runInPlace([path, 'install', ...argv], { env }, ['SIGINT', 'SIGTERM'])
}

/** The newest release that is not skipped, or nothing: a feed that withholds it must not be able to choose an older one. */
async function newestOf(feed: Feed, skip: Skip): Promise<Release | null> {
  const { release, problem } = await feed.latest(skip)
  if (problem !== null) throw problem
  return release
}

async function fetchTo(path: string, release: Release, feed: Feed, { service, report }: Context): Promise<void> {
  const disk = makeDisk()
  const onProgress = ({ bytes, totalBytes }: { bytes: number; totalBytes: number }) => report.bytes(bytes, totalBytes)
  report.stage('download')
  const candidate = await makeDownload({ feed, disk, partialPath: path, onProgress })(release)
  report.stage('verify')
  await makeVerify({ service, disk })(candidate, release)
}
