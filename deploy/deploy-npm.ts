// Makes a service of this host out of a package of npm: resolves a version, makes a release of it apart from the host, puts that into a
// folder, and installs or updates from there like any other. `--update`, as its timer, makes newer releases
// of what is here already into the folder, where the service finds them.
// Must hold: nothing of a package runs as root, and nothing that serves is touched before its release is whole in the folder.

import { readdir } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { asBatonError, BatonError, EXIT, isService, MEANINGS, reasonOf } from '../agent/words.ts'
import { excludesNode, isInRange, isVersionRange } from './make/engines.ts'
import { answerInside } from './make/inside.ts'
import { broughtVersion } from './make/node.ts'
import { IS_PACKAGED, PROJECT } from './make/place.ts'
import { sendRelease } from './make/publish.ts'
import { sumsFault, updateReleases } from './make/release-folder.ts'
import {
  assertFree,
  assertSupervised,
  type Deployment,
  deployHere,
  findInstalled,
  isAnyInstalled,
} from './host/deploy.ts'
import { type HostReport, makeReport } from './host/report.ts'
import { takeOverLine, planTakeOver, type TakeOver, takeOver } from './npm-adopt.ts'
import { toolsFor } from './npm-tools.ts'
import {
  ARGUMENTS,
  type Wish,
  droppedOf,
  keptNow,
  lateChange,
  madeOf,
  minAgeOf,
  newestOf,
  packageIn,
  planLines,
  refuseOlder,
  refuseOtherFeed,
  refuseReplaced,
  seenOf,
  usualService,
  withinOf,
} from './npm/asked.ts'
import { broughtRecipe, isPackageName, readRecipe, withoutRecipe } from './npm/recipe.ts'
import {
  changedSince,
  chooseVersion,
  integritiesOf,
  type Listed,
  type PackageVersion,
  refusePassedOver,
} from './npm/registry.ts'
import { makeRelease } from './npm/release.ts'
import { wayBack } from './npm/former.ts'
import { askRegistry, registryFor, type NpmTools } from './npm/steps.ts'
import { endTimer, keepTimer } from './npm/timer.ts'
import {
  type Adopted,
  type ServiceRecord,
  lockWorkshop,
  openWorkshop,
  pruneWorkshop,
  readKept,
  sweepWorkshop,
  takeOut,
  type Workshop,
  workshopOf,
  workshopsPlace,
  writeKept,
} from './npm/workshop.ts'
import { mainOf } from './npm/wrap.ts'
import { type CommandLine, durationOf, IRREVERSIBLE_FLAG, parseFlags, usage, type Values } from './lib/flags.ts'
import { helpFor, printHelp } from './lib/help.ts'
import { progressFor } from './lib/progress.ts'
import { run } from './lib/shell.ts'
import { rehearsalLines } from './lib/switch.ts'
import { assertTrusted, temporaryFolder } from './lib/trusted.ts'

export const COMMAND = {
  name: IS_PACKAGED ? 'baton deploy npm' : 'deploy-npm.sh',
  description: 'installs an npm package as a service on this host, and keeps it up to date',
  args: ARGUMENTS,
} as const satisfies CommandLine

type Typed = Values<(typeof COMMAND)['args']>

const isRoot = process.geteuid?.() === 0
const RECIPES = IS_PACKAGED ? join(PROJECT, 'lib', 'recipes') : join(PROJECT, 'deploy', 'npm', 'recipes')

async function main(all: readonly string[]): Promise<number> {
  if (all[0] === 'inside') return await answerInside(all[1] ?? '')
  const end = all.includes('--') ? all.indexOf('--') : all.length
  const [argv, args] = [all.slice(0, end), all.slice(end + 1)]
  const about = { command: 'deploy', service: '' }
  let report = makeReport({ json: argv.includes('--json'), quiet: false, verbose: false, about })
  try {
    const help = await helpFor(argv, COMMAND)
    if (help !== null) return printHelp(help)
    const values = parseFlags(argv, COMMAND)
    report = makeReport({ json: values.json, quiet: values.quiet, verbose: false, about })
    if (isRoot) await assertTrusted(PROJECT, 'a clone', 'clone into a folder owned by root, such as /root')
    const place = workshopsPlace(isRoot, absolute(values.home))
    if (isRoot) await assertTrusted(place, 'a folder for releases', 'specify a folder owned by root with `--home`')
    if (values.update) return await updateAll(values, place, report)
    if (values.adopt && values['build-only']) throw usage('expected `--adopt` or `--build-only`, got both')
    const asked = await askedIn(values, args)
    about.service = asked.service
    return await deployOne(asked, values, place, report)
  } catch (cause) {
    const error = asBatonError(cause, 'unexpected', 'deploying from npm')
    report.failed(error)
    return MEANINGS[error.code].exit
  }
}

async function askedIn(values: Typed, args: string[]): Promise<Wish> {
  const { name, range } = packageIn(values.package ?? '', isVersionRange)
  const { release } = values
  if (release !== 'latest' && !/^\d+\.\d+\.\d+$/.test(release))
    throw usage(`expected latest or X.Y.Z for --release, got ${JSON.stringify(release)}`)
  const recipe =
    values.recipe === undefined ? await broughtRecipe(RECIPES, name) : await readRecipe(resolve(values.recipe))
  if (recipe !== null && recipe.package !== name) throw usage(`the recipe is for ${recipe.package}, not for ${name}`)
  const service = values.name ?? recipe?.name ?? usualService(name)
  if (!isService(service))
    throw usage(`expected a name containing only a-z, 0-9 and - for --name, got ${JSON.stringify(service)}`)
  const allowed = (values['allow-scripts'] ?? '').split(',').filter(Boolean)
  for (const one of allowed)
    if (!isPackageName(one)) throw usage(`expected package names for --allow-scripts, got ${JSON.stringify(one)}`)
  return { package: name, range, service, release, recipe, args, allowed, minAge: values['min-age'] }
}

async function deployOne(asked: Wish, values: Typed, place: string, report: HostReport): Promise<number> {
  const { service, release } = asked
  const dryRun = values['dry-run']
  const receipt = values['build-only'] ? null : await findInstalled(service)
  if (receipt === null && !values['build-only']) {
    await assertSupervised(values.service !== false)
    if (!values.adopt) await assertFree(service, values.listen)
  }
  const before = await readKept(workshopOf(place, service, { isRoot, feed: null }))
  const feed = absolute(values.dir) ?? before?.feed ?? null
  const lasting = workshopOf(place, service, { isRoot, feed })
  await using trying = dryRun ? await temporaryFolder('baton-npm-', 0o755) : null
  const shop = trying === null ? lasting : workshopOf(trying.path, service, { isRoot, feed: null })
  if (receipt !== null) refuseOtherFeed(lasting, receipt.feed)
  const typed = absolute(values.data)
  const adoption = { ...asked, isRoot, typed, receipt, adopted: before?.adopted ?? null }
  const over = values.adopt ? await planTakeOver(adoption) : null
  if (over !== null && !dryRun && !values.yes)
    throw new BatonError('refused', `this would ${takeOverLine(over, values.listen)}`, {
      hint: `to proceed, add \`--yes\`; to undo this later, stop the service and ${wayBack(over.former)}`,
    })
  await openWorkshop(shop)
  using _lock = lockWorkshop(shop)
  const kept = { ...keptNow(await readKept(lasting), asked), feed: shop.feed }
  const tools = await toolsFor(shop, absolute(values.kit), !dryRun)
  const registry = await registryFor(shop, tools, kept.package)
  const listed = await askRegistry(shop, tools, kept.package)
  for (const { what } of changedSince(listed, seenOf(kept))) report.note(`warning: ${what}`)
  const chosen = chooseVersion(listed, { ...wantedBy(kept, 0), release, newerThan: null })
  const { version } = chosen
  if (version === null) throw new BatonError('release_not_found', `found no version of ${kept.package} in the registry`)
  for (const note of [...droppedOf(before, kept), ...(dryRun ? [] : withinOf(kept))]) report.note(note)
  refuseReplaced(kept, version)
  mainOf(kept.recipe ?? withoutRecipe(kept.package), version) // refuses what nothing would start, before anything is fetched
  if (receipt !== null && release === 'latest') refuseOlder(kept, version)
  refusePassedOver(chosen)
  const tag = `v${version.version}`
  if (dryRun) {
    const taking = over === null ? [] : [{ text: takeOverLine(over, values.listen) }]
    const end = values['build-only'] ? null : receipt === null ? 'install' : 'upgrade'
    report.told([...planLines(kept, version, lasting, registry, end), ...taking])
    report.result({ outcome: 'planned', to: tag, exit: EXIT.done }, [])
    return EXIT.done
  }
  const late = lateChange(before, kept, tag)
  const anew = values['build-only'] && late.length > 0
  const { made, told } = await releaseOf({ shop, tools, kept, listed, version, registry, anew }, values)
  for (const note of made ? [] : late) report.note(note)
  // that took a while: what runs may be another process by now, and the number of the former one another's
  const now = over === null ? null : await planTakeOver(adoption)
  const end: Ending = { shop, tag, built: { package: kept.package, told, feed: shop.feed }, over: now }
  if (!values['build-only']) return await installOne(end, values, report)
  report.result({ outcome: made ? 'built' : 'up_to_date', to: tag, ...end.built, exit: EXIT.done }, [
    `${made ? 'built' : 'already there:'} ${join(shop.feed, tag)}`,
  ])
  return EXIT.done
}

interface Ending {
  shop: Workshop
  tag: string
  built: { package: string; told: string[]; feed: string }
  over: TakeOver | null
}

async function installOne(end: Ending, values: Typed, report: HostReport): Promise<number> {
  const { shop, tag, built, over } = end
  const { service } = shop
  const mark = async (adopted: Adopted) => {
    const kept = await readKept(shop)
    if (kept !== null) await writeKept(shop, { ...kept, adopted })
  }
  const deployment = deploymentOf(end, values)
  if (over?.isCopied === false) await mark('begun')
  const ended = await deployHere(deployment, report)
  const took = over === null ? [] : await takeOver(over, service, mark)
  for (const line of took) report.note(line)
  const home = absolute(values.home)
  const timer = values.timer
    ? await keepTimer({ isRoot, home, command: updateCommand(home), path: process.env['PATH'] ?? '' })
    : 'no timer will check for newer versions (`--no-timer`)'
  report.note(timer)
  const { outcome, from, to, operation, notes } = ended
  report.result({ outcome, from, to, ...built, timer, notes, exit: EXIT.done }, [
    `${service}: ${outcome ?? ''} ${to ?? tag}`,
    ...(notes ?? rehearsalLines(operation?.trial ?? null)),
  ])
  return EXIT.done
}

const absolute = (path: string | undefined) => (path === undefined ? null : resolve(path))

const leavesOutNode = (range: string | null) => excludesNode(range, broughtVersion())

function wantedBy(kept: ServiceRecord, minAgeMs: number) {
  return {
    isInRange: (version: string) => isInRange(version, kept.range),
    fitsNode: ({ node }: PackageVersion) => kept.recipe?.anyNode === true || !leavesOutNode(node),
    nodeVersion: broughtVersion(),
    minAgeMs,
  }
}

interface Task {
  shop: Workshop
  tools: NpmTools
  kept: ServiceRecord
  listed: Listed
  version: PackageVersion
  registry: string
  /** what is there was made as it was said before, and gives way once the new one has been tried */
  anew: boolean
}

/** Puts the release of this version into the feed, unless it is there. */
async function releaseOf(
  { shop, tools, kept, listed, version, registry, anew }: Task,
  values: Pick<Typed, 'json' | 'quiet'>,
): Promise<{ made: boolean; told: string[] }> {
  const tag = `v${version.version}`
  const seen = { ...integritiesOf(listed), ...kept.seen }
  await sweepWorkshop(shop)
  // after a power cut it may be there in part
  const isThere = !anew && (await sumsFault(join(shop.feed, tag)).catch(reasonOf)) === null
  if (!isThere && !anew) await takeOut(shop, [tag])
  const isNoted = kept.built.some((one) => one.version === version.version)
  if (isThere) {
    if (!isNoted) await updateReleases(shop.feed, shop.service) // a kill may have come before it was listed
    const more = isNoted ? [] : [{ version: version.version, at: new Date().toISOString(), sizeBytes: 0 }]
    await writeKept(shop, { ...kept, seen, built: [...kept.built, ...more] })
    return { made: false, told: kept.told }
  }
  await writeKept(shop, { ...kept, seen }) // the next run knows what this one has seen, whatever becomes of it
  const progress = progressFor(values)
  try {
    const say = { stage: progress.stage, note: progress.note }
    const made = await makeRelease({ shop, tools, kept, version, registry, excludesNode: leavesOutNode, say })
    if (anew) await takeOut(shop, [tag])
    await sendRelease({ from: made.out, tag, service: shop.service, to: shop.feed, signed: false, progress })
    await run(['sync'], { allowFailure: true })
    const built = [
      ...kept.built.filter((one) => one.version !== version.version),
      { version: version.version, at: new Date().toISOString(), sizeBytes: made.sizeBytes, madeOf: madeOf(kept) },
    ]
    await writeKept(shop, { ...kept, seen, shown: made.shown, built: built.slice(-10), told: made.told })
    const removed = await pruneWorkshop(shop)
    if (removed.length > 0) {
      await updateReleases(shop.feed, shop.service)
      progress.note(`removed from disk: ${removed.join(', ')}`)
    }
    progress.end('done')
    return { made: true, told: made.told }
  } catch (cause) {
    progress.end('failed')
    throw cause
  } finally {
    await sweepWorkshop(shop).catch(() => {}) // as the next run does first
  }
}

function deploymentOf({ shop: { service, feed }, tag, over }: Ending, values: Typed): Deployment {
  return {
    service,
    release: tag,
    rollback: false,
    allowIrreversible: values[IRREVERSIBLE_FLAG],
    feed,
    healthUrl: values['health-url'] ?? null,
    healthTimeoutMs: durationOf('--health-timeout', values['health-timeout']),
    lockTimeoutMs: durationOf('--lock-timeout', values['lock-timeout']),
    installFlags: [
      ...(values.listen === undefined ? [] : ['--listen', values.listen]),
      ...(values.service === false ? ['--no-service'] : []),
      ...(over === null ? [] : ['--no-start']),
    ],
    dryRun: false,
  }
}

function updateCommand(home: string | null): string[] {
  const program = IS_PACKAGED
    ? [process.execPath, join(import.meta.dirname, 'deploy-npm.js')]
    : [join(import.meta.dirname, 'deploy-npm.sh')]
  return [...program, '--update', ...(home === null ? [] : ['--home', home])]
}

interface Updated {
  service: string
  outcome: 'published' | 'up_to_date' | 'planned'
  to: string | null
  lines: string[]
}

/** One that fails keeps no other from its update; the first failure is how it ends. */
async function updateAll(values: Typed, place: string, report: HostReport): Promise<number> {
  const names = values.name === undefined ? await readdir(place).catch(() => []) : [values.name]
  const isNeeded = values.name !== undefined || values['dry-run'] || (await isAnyInstalled(names))
  const ended = isNeeded ? null : await endTimer({ isRoot, home: absolute(values.home) })
  if (ended !== null)
    report.note(`removed the timer ${ended}, which checked the npm registry: no npm service is installed here`)
  const [done, failed]: [Updated[], BatonError[]] = [[], []]
  for (const service of names) {
    try {
      const kept = await readKept(workshopOf(place, service, { isRoot, feed: null }))
      if (kept === null || kept.built.length === 0) {
        if (values.name === undefined) continue // such as one that was tried, and refused
        const hint = kept === null ? {} : { hint: `use the full name of the package: ${kept.package}` }
        throw new BatonError('refused', `there is no npm service named ${service} in ${place}`, hint)
      }
      const end = `to stop building new releases, remove ${join(place, service)}`
      if ((await findInstalled(service)) === null) report.note(`${service} is not installed here; ${end}`)
      done.push(await updateOne(workshopOf(place, service, { isRoot, feed: kept.feed }), kept, values, report))
    } catch (cause) {
      const error = asBatonError(cause, 'unexpected', `updating ${service}`)
      report.note(`error: ${service}: ${error.message}`)
      failed.push(error)
    }
  }
  const [first] = failed
  if (first !== undefined) throw first
  const outcome = done.find((one) => one.outcome !== 'up_to_date')?.outcome ?? 'up_to_date'
  const lines = done.flatMap((one) => [
    `${one.service}: ${one.outcome} ${one.to ?? ''}`,
    ...one.lines.map((line) => `  ${line}`),
  ])
  report.result({ outcome, to: done.length === 1 ? done[0]?.to : null, services: done, exit: EXIT.done }, lines)
  return EXIT.done
}

async function updateOne(shop: Workshop, before: ServiceRecord, values: Typed, report: HostReport): Promise<Updated> {
  await openWorkshop(shop)
  using _lock = lockWorkshop(shop)
  const kept = { ...before, minAgeMs: minAgeOf(values['min-age'], before.minAgeMs) }
  const dryRun = values['dry-run']
  const tools = { ...(await toolsFor(shop, absolute(values.kit), !dryRun)), calm: true }
  const registry = await registryFor(shop, tools, kept.package)
  const listed = await askRegistry(shop, tools, kept.package)
  const changes = changedSince(listed, seenOf(kept))
  const replaced = changes.map(({ version }) => `v${version}`)
  const gone = dryRun ? [] : await takeOut(shop, replaced)
  if (gone.length > 0) await updateReleases(shop.feed, shop.service)
  const lines = [
    ...changes.map(({ what }) => `warning: ${what}`),
    ...gone.map((tag) => `removed from ${shop.feed}: ${tag}`),
  ]
  for (const line of lines) report.note(line)
  const newest = newestOf(kept)
  const { service } = shop
  const wanted = { ...wantedBy(kept, kept.minAgeMs), release: 'latest', newerThan: newest }
  const { version, notes } = chooseVersion(listed, wanted)
  for (const note of notes) report.note(note)
  if (version === null) {
    if (!dryRun) await writeKept(shop, { ...kept, seen: { ...integritiesOf(listed), ...kept.seen } })
    return { service, outcome: 'up_to_date', to: newest === null ? null : `v${newest}`, lines: [...lines, ...notes] }
  }
  refuseReplaced(kept, version)
  const to = `v${version.version}`
  if (dryRun) return { service, outcome: 'planned', to, lines: [...lines, ...notes] }
  const { made, told } = await releaseOf({ shop, tools, kept, listed, version, registry, anew: false }, values)
  return { service, outcome: made ? 'published' : 'up_to_date', to, lines: [...lines, ...notes, ...told] }
}

if (import.meta.main) process.exitCode = await main(process.argv.slice(2))
