// One package of the registry by its recipe alone, as an operator has it: the version before the newest by `deploy-npm.sh --build-only`, an
// install from that folder, an update to the newest and one to a release that breaks, while clients ask its health. The broken one is
// the newest, published under another number in a registry of the lab. What was measured is written into the recipe.

import { appendFile, mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { compareTags, parsedJson } from '../../agent/words.ts'
import { recordOf } from '../../deploy/lib/agent-answer.ts'
import { PROJECT } from '../../deploy/make/place.ts'
import { type Recipe, readRecipe, recipeName } from '../../deploy/npm/recipe.ts'
import { mainOf } from '../../deploy/npm/wrap.ts'
import { type CommandResult, run } from '../../deploy/lib/shell.ts'
import { ask, freePort } from '../fixtures/install.ts'
import { spawnLoad } from '../lab/load.ts'
import { publishTarball, startRegistry } from '../lab/npm-registry.ts'
import { temporary } from '../lab/temporary.ts'
import { operate } from './adopt.ts'
import { ENDING } from './real/adopt.ts'

export interface FromNpm {
  package: string
  /** the two that were published by its own maintainers */
  versions: string[]
  buildMs: number[]
  outcomes: string[]
  pausesMs: number[]
  requests: number
  lost: number
  /** `status` of its health path, before and after */
  answers: number[]
  /** what the builds warned of */
  warnings: string[]
}

const BASE = '/_baton'
/** whoever waits for a pause is not lost */
export const ASKING = { mode: 'fresh', clients: 4, thinkMs: 50, hangMs: 60_000 } as const

/** `name@X.Y.Z`: an update to that version, if this registry lacks what the newest needs. */
export async function fromNpm(wanted: string, packed: string, say: (line: string) => void): Promise<FromNpm> {
  await using work = await temporary('from-npm')
  const upstream = await ownRegistry()
  await using registry = await startRegistry(join(work.path, 'registry'), { upstream })
  const { recipe, before, newest, broken } = await versionsOf(wanted, upstream)
  const home = join(work.path, 'home')
  const buildMs: number[] = []
  const warnings = new Set<string>()
  let feed = ''
  let service = ''
  const build = async (...words: string[]) => {
    const began = performance.now()
    say(words.join(' '))
    const flags = ['--build-only', '--home', join(work.path, 'npm'), '--kit', packed, '--json', '-q']
    const command = [join(PROJECT, 'deploy/deploy-npm.sh'), ...words, ...flags]
    const end = endIn(await run(command, { env: { npm_config_registry: registry.url }, allowFailure: true }))
    for (const line of end.told) if (line.startsWith('warning: ')) warnings.add(line)
    ;[feed, service] = [end.feed, end.service]
    buildMs.push(Math.round(performance.now() - began))
  }
  await build(recipe.package, '--release', before)

  const [port, environment] = [await freePort(), { HOME: home, XDG_CONFIG_HOME: undefined, XDG_STATE_HOME: undefined }]
  await mkdir(home)
  const script = join(feed, `v${before}`, 'install.sh')
  const flags = ['--user', '--no-service', '--no-start', '--listen', `127.0.0.1:${port}`, '-y', '-q']
  await run(['sh', script, 'install', ...flags], { env: environment })
  const path = join(home, '.config', service, 'config.json')
  const config = JSON.parse(await readFile(path, 'utf8')) as { dashboard: { password: string } }
  await writeFile(path, JSON.stringify({ ...config, update: { probation: '3s', drainTimeout: '5s', maxPause: '60s' } }))
  const { password } = config.dashboard
  const command = join(home, '.local', 'bin', service)
  await using _stop = {
    [Symbol.asyncDispose]: async () =>
      void (await run([command, 'stop', '--user', '-q'], { env: environment, allowFailure: true })),
  }
  await run([command, 'start', '--user', '-q'], { env: environment })
  const health = recipe.healthPath ?? '/'
  const answers = [(await ask(port, 'GET', health, null)).status]

  await build(recipe.package, '--release', newest)
  await publishBroken(join(work.path, 'registry'), { recipe, newest, broken }, ENDING)
  await writeFile(join(work.path, 'note'), '')
  const load = await spawnLoad({ ...ASKING, port, path: health })
  const updated = await operate(port, password, `${BASE}/admin/update`, { body: { tag: `v${newest}` }, base: BASE })
  const { requests, lost } = await load.stop()
  answers.push((await ask(port, 'GET', health, null)).status)
  // the command's own try refuses it before it is a release
  const refused = await build(recipe.package, '--release', broken).then(
    () => 'built',
    (cause: Error) => `refused: ${cause.message}`,
  )
  answers.push((await ask(port, 'GET', health, null)).status)
  const outcome = (updated.outcome ?? 'none') + (updated.error === null ? '' : `: ${updated.error.message}`)
  return {
    package: recipe.package,
    versions: [before, newest],
    buildMs,
    outcomes: [outcome, refused],
    pausesMs: [updated.handover?.pauseMs ?? -1],
    requests,
    lost,
    answers,
    warnings: [...warnings],
  }
}

/** What the command's last line says. Throws with its error as it begins: an application may have said more than a log has room for. */
export function endIn({ exitCode, stdout, stderr }: CommandResult): {
  service: string
  outcome: string
  feed: string
  told: string[]
} {
  const end = recordOf(parsedJson(stdout.trim().split('\n').at(-1) ?? ''))
  if (end['event'] === 'result') return end as unknown as ReturnType<typeof endIn>
  const said = typeof end['message'] === 'string' ? `${String(end['code'])}: ${end['message']}` : stderr.trim()
  throw new Error(`it ended with ${exitCode}: ${said.slice(0, 1000)}`)
}

export function faultsFromNpm({ package: name, outcomes, lost, requests, answers }: FromNpm): string[] {
  const [updated, broken] = outcomes
  return [
    ...(updated === 'updated' ? [] : [`${name}: expected updated, got ${updated}`]),
    ...(broken?.startsWith('refused: ') === true
      ? []
      : [`${name}: expected the broken release to be refused, got ${broken}`]),
    ...(lost === 0 && requests > 0 ? [] : [`${name}: lost ${lost} of ${requests}`]),
    ...answers.filter((status) => status >= 400).map((status) => `${name}: its health answers ${status}`),
  ]
}

/** Into its recipe, from where `npm run pages` takes it. */
export async function noteTried({ package: name, versions, pausesMs, lost, requests }: FromNpm): Promise<void> {
  const recipe = JSON.parse(await readFile(pathOf(name), 'utf8')) as Record<string, unknown>
  const tried = `${versions.join(' to ')}: ${pausesMs.map((ms) => (ms < 0 ? 'no pause' : `${ms} ms`)).join(', ')}, lost ${lost} of ${requests}`
  await writeFile(pathOf(name), `${JSON.stringify({ ...recipe, tried }, null, 2)}\n`)
}

/** The registry that npm has on this machine. */
export async function ownRegistry(): Promise<string> {
  return (await run(['npm', 'config', 'get', 'registry'])).stdout.trim()
}

export interface Versions {
  recipe: Recipe
  before: string
  newest: string
  /** the number after it, which is free */
  broken: string
}

/** `name@X.Y.Z`: that version and the one before it. */
export async function versionsOf(wanted: string, registry: string): Promise<Versions> {
  const [, name = '', most = null] = /^(.+?)(?:@(\d+\.\d+\.\d+))?$/.exec(wanted) ?? []
  const recipe = await readRecipe(pathOf(name))
  const [before, newest] = await lastTwo(recipe.package, registry, most)
  const [major, minor, patch] = newest.split('.')
  return { recipe, before, newest, broken: `${major}.${minor}.${Number(patch) + 1}` }
}

function pathOf(name: string): string {
  return join(PROJECT, 'deploy/npm/recipes', `${recipeName(name)}.json`)
}

/** The newest one of the form X.Y.Z that is not above `most` (null: `latest`), and the one before it. */
async function lastTwo(name: string, registry: string, most: string | null): Promise<[string, string]> {
  const said = await run(['npm', 'view', name, 'versions', 'dist-tags', '--json', '--registry', registry])
  const { versions, 'dist-tags': tags } = JSON.parse(said.stdout) as {
    versions: string[]
    'dist-tags': { latest: string }
  }
  const plain = versions
    .filter((one) => /^\d+\.\d+\.\d+$/.test(one) && compareTags(`v${one}`, `v${most ?? tags.latest}`) <= 0)
    .toSorted((a, b) => compareTags(`v${a}`, `v${b}`))
  const [before, newest] = plain.slice(-2)
  if (before === undefined || newest === undefined)
    throw new Error(`${name}: expected two versions, got ${plain.join(', ')}`)
  return [before, newest]
}

/** Puts the newest into a registry of the lab under the next number, with `text` at the end of its main file. */
export async function publishBroken(
  folder: string,
  { recipe, newest, broken }: Omit<Versions, 'before'>,
  text: string,
): Promise<void> {
  await using work = await temporary('broken')
  const packed = await run(
    ['npm', 'pack', `${recipe.package}@${newest}`, '--silent', '--ignore-scripts', '--pack-destination', work.path],
    { cwd: work.path },
  )
  const file = join(work.path, packed.stdout.trim().split('\n').at(-1) ?? '')
  await publishTarball(folder, file, broken, async (inside) => {
    const manifest = JSON.parse(await readFile(join(inside, 'package.json'), 'utf8')) as Record<string, unknown>
    await appendFile(join(inside, mainOf(recipe, manifest)), text)
  })
}
