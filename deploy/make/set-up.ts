// `baton init`: looks at an application, starts it once if its author allows that, shows what it would write, asks, and writes it.
// Must hold: it starts and writes nothing without the author's consent; no file of theirs is replaced; the entry gets one line.

import { existsSync } from 'node:fs'
import { mkdir, readFile, realpath, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { createInterface } from 'node:readline/promises'
import { BatonError, isService, isTag, parsedJson } from '../../agent/words.ts'
import { recordOf } from '../lib/agent-answer.ts'
import { broughtBy, detect, type Detected, isBrought, sourceOf, startable } from './detect.ts'
import { noteOfDotEnv } from './dot-env.ts'
import { forkingFile, movingFile } from './forks.ts'
import { layoutFault, packageWith } from './layout.ts'
import { packagesOf } from './packages.ts'
import { formatPatch, type InitPlan, patched, planInit, startEnvironment } from './init.ts'
import { CONFIG, readProject } from './project.ts'
import type { SourceStart } from './source-start.ts'
import { readJson } from './source-text.ts'

export interface SetUpFlags {
  /** its name; null: package.json's */
  service: string | null
  /** start the application once, without a question */
  starts: boolean
  /** write without a question; starts nothing */
  yes: boolean
  json: boolean
  dryRun: boolean
}

interface Output {
  /** a line for a person */
  say(line: string): void
  /** a value for a program */
  print(value: unknown): void
}

/** Throws BatonError invalid_request without a package.json, refused if there is nobody to ask. */
export async function setUp(folder: string, flags: SetUpFlags, { say, print }: Output): Promise<void> {
  const denoFile = ['deno.json', 'deno.jsonc'].find((name) => existsSync(join(folder, name)))
  if (!existsSync(join(folder, 'package.json')) && denoFile !== undefined)
    throw otherRuntime('Deno', `there is a ${denoFile} but no package.json`)
  if (!existsSync(join(folder, 'package.json')))
    throw new BatonError('invalid_request', `there is no package.json in ${folder}`, {
      hint: 'run `npm init` to create one',
    })
  const configured = await configuredIn(folder)
  const entry = typeof configured?.['entry'] === 'string' ? configured['entry'] : null
  const found = { ...detect(folder), ...named(flags.service, configured) }
  if (found.foreignRuntime !== null && configured === null)
    throw otherRuntime(found.foreignRuntime, `its start script or source code requires ${found.foreignRuntime}`)
  const { folder: inner } = found.start
  if (configured === null && inner !== '.' && isPackage(join(folder, inner))) throw ownPackage(inner)
  if (entry !== null && isBrought(entry)) found.brought ??= broughtBy(folder, null, entry)
  if (entry !== null) {
    const first = sourceOf(folder, entry) ?? entry
    Object.assign(found, { forks: forkingFile(folder, first), moves: movingFile(folder, first) })
  }
  const shown = (await mayStart(flags, folder, found, configured !== null))
    ? await startOnce(folder, found, configured !== null)
    : null
  const { foreignEngines } = await import('./engines.ts')
  const lacksEntry = entry !== null && !existsSync(join(folder, entry))
  const whole = planInit(found, { configured, lacksEntry, shown }, await foreignEngines(folder))
  const dotEnv = configured === null ? await noteOfDotEnv(folder, startEnvironment(found)) : null
  if (dotEnv !== null) whole.notes.push(dotEnv)
  const plan: InitPlan = { ...whole, files: whole.files.filter(({ path }) => !existsSync(join(folder, path))) }
  const source = plan.patch === null ? null : await readFile(join(folder, plan.patch.path), 'utf8')
  const embedded = plan.patch === null || source === null ? null : patched(source, plan.patch)
  const fault = await faultBeforeBuild(folder, found, configured)
  const tellFault = ({ message, hint }: BatonError) =>
    say(`\nfix this before you build: ${message}\nhint: ${hint ?? ''}`)
  if (fault !== null && flags.json) plan.notes.unshift(`no release can be built from this layout yet: ${fault.message}`)
  if (flags.json) print({ found, shown, ...plan, patch: embedded === null ? null : plan.patch })
  else show({ found, shown, plan, isNew: embedded !== null }, say)
  if (plan.files.length === 0 && embedded === null) {
    const isLeft = plan.notes.length > 0 || plan.proposal !== null
    say(
      `nothing to write: the application is already set up${isLeft ? '; the points above are for you to decide' : ''}`,
    )
    return fault === null ? undefined : tellFault(fault)
  }
  if (flags.dryRun) return
  if (!flags.yes && !(await agreed('write this?', 'yes'))) return
  for (const { path, content } of plan.files) {
    await mkdir(dirname(join(folder, path)), { recursive: true })
    await writeFile(join(folder, path), content, { flag: 'wx' })
  }
  if (plan.patch !== null && embedded !== null) await writeFile(join(folder, plan.patch.path), embedded)
  if (fault !== null) return tellFault(fault)
  say(`\nnext: ${nextStep(found, shown)}`)
}

function otherRuntime(name: string, why: string): BatonError {
  return new BatonError('refused', `this is an application for ${name}, not Node.js: ${why}`, {
    hint: 'a release contains Node 26 and can only run Node applications: if this is one, add a `start` script such as `node server.js`',
  })
}

/** Whether it has packages of its own: a release of the folder around it would lack them. */
function isPackage(folder: string): boolean {
  const path = join(folder, 'package.json')
  return existsSync(path) && Object.keys(recordOf(recordOf(readJson(path))['dependencies'])).length > 0
}

function ownPackage(folder: string): BatonError {
  return new BatonError(
    'refused',
    `the start script runs an application in \`${folder}\`, which is a separate package`,
    {
      hint: `to set it up there, run \`cd ${folder} && npx baton init\`; move the rest of this start script into that package's start script`,
    },
  )
}

function nextStep({ version }: Detected, shown: SourceStart | null): string {
  if (shown?.needsRebuild === true) return 'npx baton rebuild'
  const tag = `v${version ?? ''}`
  return `npx baton build ${isTag(tag) ? tag : 'v0.1.0'}`
}

/** The name that is asked for, if any. An installed service keeps its own, so a configuration that is there is not changed. */
function named(service: string | null, configured: Record<string, unknown> | null): Pick<Detected, 'service'> | null {
  if (service === null) return null
  const shown = JSON.stringify(service.slice(0, 40))
  if (!isService(service))
    throw new BatonError('invalid_request', `expected a name made of a-z, 0-9 and - for --service, got ${shown}`)
  if (configured !== null && configured['service'] !== service)
    throw new BatonError(
      'refused',
      `${CONFIG} already names this service \`${String(configured['service'])}\`; to rename it, edit that file`,
    )
  return { service }
}

/** What keeps every build of kind `app` from packing the folder itself; null: nothing, or another kind or other folders are packed. */
async function faultBeforeBuild(
  folder: string,
  found: Detected,
  configured: Record<string, unknown> | null,
): Promise<BatonError | null> {
  const { kind = 'app', entry = found.entry, include } = configured ?? {}
  if (kind !== 'app' || include !== undefined || found.framework === 'next') return null
  const root = await realpath(folder)
  const main = typeof entry === 'string' ? entry : null
  return await layoutFault(root, main, await packagesOf(root, packageWith(root, main ?? '')))
}

/** The author's own configuration; empty if it is no JSON, which `build` reports; null if there is none. */
async function configuredIn(folder: string): Promise<Record<string, unknown> | null> {
  const text = await readFile(join(folder, CONFIG), 'utf8').catch(() => null)
  return text === null ? null : recordOf(parsedJson(text))
}

/** Whether the application may be started: only with its author's consent, and `--yes` is not that. */
async function mayStart(flags: SetUpFlags, folder: string, found: Detected, isConfigured: boolean): Promise<boolean> {
  if (flags.starts) return true
  const asksNothing = flags.yes || flags.json || flags.dryRun || !process.stdin.isTTY
  const entry = startable(folder, found)
  if (asksNothing || isConfigured || entry === null) return false
  return await agreed(
    `start \`${['node', entry, ...found.args].join(' ')}\` once, with a temporary state directory and none of your environment variables, to find its database and its ports?`,
    'no',
  )
}

/** Loads the code for this only now: `init` without a start does not need it. */
async function startOnce(folder: string, found: Detected, isConfigured: boolean): Promise<SourceStart> {
  const { startFromSource } = await import('./source-start.ts')
  const project = isConfigured
    ? await readProject(folder)
    : { environment: startEnvironment(found), args: found.args, try: { environment: {} }, called: CONFIG }
  return await startFromSource(folder, found, project)
}

interface Shows {
  found: Detected
  shown: SourceStart | null
  plan: InitPlan
  /** the entry does not embed the agent yet */
  isNew: boolean
}

function show({ found, shown, plan, isNew }: Shows, say: Output['say']): void {
  const of = (text: string | null) => text ?? 'not found'
  const { healthPath, database } = shown ?? { healthPath: found.healthPath, database: null }
  say(
    `${found.service}: framework ${found.framework}${found.typescript ? ', TypeScript' : ''}, package manager ${found.packageManager}`,
  )
  say(
    `  entry ${of(found.entry)} · health ${of(healthPath)} · database ${shown === null ? 'not checked (use `--try`)' : of(database)}\n`,
  )
  for (const { path, content } of plan.files) {
    const lines = content.trimEnd().split('\n')
    say([`+ ${path}`, ...lines.map((line) => `  ${line}`)].join('\n'))
  }
  if (plan.patch !== null && isNew) say(`\n${formatPatch(plan.patch)}`)
  if (plan.proposal !== null) say(`\n${plan.proposal}(change that file yourself)\n`)
  for (const note of plan.notes) say(`note: ${note}`)
}

/** `usual`: what an empty answer means. */
async function agreed(question: string, usual: 'yes' | 'no'): Promise<boolean> {
  if (!process.stdin.isTTY)
    throw new BatonError('refused', 'confirmation required, but there is no terminal to prompt on', {
      hint: 'to run without questions, add `--yes`',
    })
  const lines = createInterface({ input: process.stdin, output: process.stderr })
  const answer = await lines.question(`\n${question} ${usual === 'yes' ? '[Y/n]' : '[y/N]'} `)
  lines.close()
  return /^(y|yes)$/i.test(answer.trim() || usual)
}
