// A package of the registry as an operator has it: on a bare host with systemd, one command of root installs the version before the
// newest as a unit, the same command updates it, and a release that breaks is given to it, while clients of its own kind work.
// Must hold: nothing but `deploy-npm.sh` and the service's own command is used, with the settings of an install.

import { cp, mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../../deploy/make/place.ts'
import { serviceName } from '../../agent/words.ts'
import { ask, freePort } from '../fixtures/install.ts'
import { spawnLoad } from '../lab/load.ts'
import { eventsIn, put } from '../lab/managed.ts'
import { bootNpmHost, type NpmHost } from '../lab/npm-host.ts'
import { ASKING, endIn, ownRegistry, publishBroken, versionsOf } from './npm.ts'
import { ENDING, REAL, type Seen, startClient } from './real/adopt.ts'

/** What its clients are, and how its broken release is. */
interface Trial {
  /** folder of test/apps/real; its client.mjs */
  client: string
  env?: Readonly<Record<string, string>>
  /** of the package, if not the newest */
  version?: string
  /** `at-once`: the command's own try can find it. `on-data`: it works on an empty state, so only the service itself can */
  breaks: 'at-once' | 'on-data'
}

/** By the recipe's name. */
const TRIALS = {
  'json-server': { client: 'json-server', breaks: 'at-once' },
  verdaccio: { client: 'verdaccio', breaks: 'on-data' },
  'node-red': { client: 'node-red', env: { ADMIN: '', API: '' }, breaks: 'on-data' },
  peer: { client: 'peerjs', breaks: 'at-once' },
  tiddlywiki: { client: 'tiddlywiki', breaks: 'on-data' },
  s3rver: { client: 's3rver', breaks: 'at-once' },
  dynalite: { client: 'dynalite', version: '3.2.2', breaks: 'on-data' }, // 4.0.0 finds none of the tables of 3.x
  serve: { client: 'serve', breaks: 'at-once' },
  'cors-anywhere': { client: 'cors-anywhere', breaks: 'on-data' },
  'http-server': { client: 'serve', breaks: 'on-data' },
} as const satisfies Record<string, Trial>

export const HOSTED = Object.entries<Trial>(TRIALS).map(([name, { version }]) =>
  version === undefined ? name : `${name}@${version}`,
)

export interface HostedFromNpm {
  package: string
  order: string
  /** the two that its own maintainers have published */
  versions: string[]
  /** each command, from nothing to its end */
  seconds: { install: number; update: number; broken: number }
  requests: number
  lost: number
  longestWaitMs: number
  seen: Seen
  /** `updated`, and how the broken release was told */
  outcomes: string[]
  /** what runs at the end, as its own command and as systemd say */
  running: string
  unit: string
  /** `status` of its health path after each command; 0: nobody answered */
  answers: number[]
}

const INSTALL_MOST_S = 180
/** a file that an empty state lacks */
const MARK = '.not-empty'
const ON_DATA = `
if (process.getBuiltinModule('node:fs').existsSync(\`\${process.env.STATE_DIRECTORY}/${MARK}\`)) {${ENDING}}
`

/** `name@X.Y.Z`: an update to that version. */
export async function hostedFromNpm(wanted: string, say: (line: string) => void): Promise<HostedFromNpm> {
  const upstream = await ownRegistry()
  const { recipe, before, newest, broken } = await versionsOf(wanted, upstream)
  const { client: kind, env = {}, breaks }: Trial = trialOf(wanted)
  const service = recipe.name ?? serviceName(recipe.package)
  const health = recipe.healthPath ?? '/'
  const port = await freePort()
  await using scope = new AsyncDisposableStack()
  const lab = scope.use(await bootNpmHost({ upstream }))
  const answers: number[] = []
  const healthNow = async () => (await ask(port, 'GET', health, null).catch(() => ({ status: 0 }))).status
  const deploy = async (version: string, ...more: string[]) => {
    const began = performance.now()
    say(`deploy-npm.sh ${recipe.package} --release ${version} ${more.join(' ')}`)
    const { code, stdout, stderr } = await lab.deploy(recipe.package, '--release', version, ...more)
    const seconds = Math.round((performance.now() - began) / 1000)
    answers.push(await healthNow())
    const end = wordsOf(() => endIn({ exitCode: code, stdout, stderr }).outcome)
    say(`${end}, ${seconds} s`)
    return { end, seconds }
  }

  const installed = await deploy(before, '--listen', `127.0.0.1:${port}`)
  if (installed.end !== 'installed') throw new Error(`installing ${before}: ${installed.end}`)
  const client = await startOwnClient(kind, { ...env, PORT: String(port) })
  scope.use(client)
  const load = await spawnLoad({ ...ASKING, port, path: health })
  scope.defer(async () => void (await load.stop()))
  const updated = await deploy(newest)
  const { requests, lost, longestStallMs } = await load.stop()

  await publishBroken(lab.folder, { recipe, newest, broken }, breaks === 'on-data' ? ON_DATA : ENDING)
  await put(lab.host, `/var/lib/${service}/${MARK}`, '')
  client.tell('broken')
  const refused = await deploy(broken)
  const seen = await client.finish()
  return {
    package: recipe.package,
    order: recipe.order,
    versions: [before, newest],
    seconds: { install: installed.seconds, update: updated.seconds, broken: refused.seconds },
    requests: requests + seen.done,
    lost: lost + seen.lost,
    longestWaitMs: Math.round(longestStallMs),
    seen,
    outcomes: [updated.end, refused.end],
    ...(await stateOf(lab, service)),
    answers,
  }
}

export function faultsHosted({ package: name, ...one }: HostedFromNpm): string[] {
  const { outcomes, versions, seconds, requests, seen, running, unit, answers, lost } = one
  const [updated, broken = ''] = outcomes
  const faults = answers
    .filter((status) => status === 0 || status >= 400)
    .map((status) => `its health answers ${status}`)
  if (updated !== 'updated') faults.push(`expected updated, got ${updated}`)
  if (!/^it ended with [578]: /.test(broken)) faults.push(`expected the broken release to be refused, got ${broken}`)
  if (running !== `v${versions[1]}` || unit !== 'active') faults.push(`${running} runs at the end, its unit is ${unit}`)
  if (seconds.install > INSTALL_MOST_S) faults.push(`installing took ${seconds.install} s`)
  if (requests === 0 || seen.done === 0) faults.push('its clients did nothing')
  for (const [what, count] of Object.entries({ lost, doubled: seen.doubled, missing: seen.missing }))
    if (count !== 0) faults.push(`expected ${what} 0, got ${count} of ${requests}`)
  return faults.map((fault) => `${name}: ${fault}`)
}

/** In Markdown, for a person. */
export function tableHosted(all: readonly HostedFromNpm[]): string {
  const rows = all.map(({ package: name, order, versions, seconds, seen, ...one }) => [
    name,
    order,
    versions.join(' to '),
    `${seconds.install} s`,
    `${seconds.update} s`,
    `${seconds.broken} s`,
    one.requests,
    one.lost,
    seen.doubled,
    seen.missing,
    `${one.longestWaitMs} ms`,
    `${(one.outcomes[1] ?? '').replace(/^it ended with \d+: /, '').slice(0, 90)}; ${one.running} runs`,
  ])
  const head =
    'service,order,versions,install,update,broken,requests,lost,doubled,missing,longest wait,the broken release'
  const names = head.split(',')
  return [names, names.map(() => '---'), ...rows].map((row) => `| ${row.join(' | ')} |\n`).join('')
}

function trialOf(wanted: string): Trial {
  const [name = ''] = wanted.split('@')
  const found = Object.entries(TRIALS).find(([key]) => key === name)
  if (found === undefined) throw new Error(`expected one of ${HOSTED.join(', ')}, got ${wanted}`)
  return found[1]
}

/** It has this repository's packages, and no server. */
async function startOwnClient(kind: string, env: Record<string, string>) {
  const folder = await mkdtemp(join(PROJECT, '.cache', 'npm-client-'))
  const remove = () => rm(folder, { recursive: true, force: true })
  try {
    await cp(join(REAL, kind), folder, { recursive: true })
    for (const name of ['working.mjs', 'away.mjs']) await cp(join(REAL, name), join(folder, name))
    const client = await startClient(folder, { ...process.env, ...env })
    const end = async () => {
      await client.end()
      await remove()
    }
    return { ...client, [Symbol.asyncDispose]: end }
  } catch (cause) {
    await remove()
    throw cause
  }
}

async function stateOf({ host }: NpmHost, service: string): Promise<Pick<HostedFromNpm, 'running' | 'unit'>> {
  const { stdout } = await host.run([service, 'status', '--json'])
  const unit = await host.run(['systemctl', 'is-active', service])
  return { running: String(eventsIn(stdout).at(-1)?.['running']), unit: unit.stdout.trim() }
}

function wordsOf(outcome: () => string): string {
  try {
    return outcome()
  } catch (cause) {
    return (cause as Error).message
  }
}
