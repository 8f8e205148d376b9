// Checks a container that is one of `baton image`, from within: its volume, its configuration, its feed, its answer and its holder. All else is
// its host's, and its image is replaced from there. Reads only.

import { once } from 'node:events'
import { stat } from 'node:fs/promises'
import { connect } from 'node:net'
import { exists, HOLDER, isOnLoopback, namesInGreeting, openFeed } from '../../../agent/install.ts'
import { feedName, reasonOf } from '../../../agent/words.ts'
import type { Build } from '../../../agent/service/build.ts'
import { readSettings, type Settings } from '../../../agent/service/config.ts'
import { askHealth } from '../../../agent/service/healthcheck.ts'
import type { Environment } from '../place/choices.ts'
import { whyNotWritable } from '../service/survey.ts'
import { boundSockets, openFilesBelow } from '../../lib/open-files.ts'
import { readAccess } from '../service/configuration.ts'
import { checkDatabase } from './database.ts'
import { runChecks } from './doctor.ts'
import { type Finding, ok, problem, unknownSetting, warning, type Wrong, wrongOf } from './finding.ts'

interface Inside {
  build: Build
  environment: Environment
  settings: Readonly<Settings>
}

const CHECKS = [
  { title: 'configuration', look: configuration },
  { title: 'state', look: async ({ settings }: Inside) => [await state(settings)] },
  {
    title: 'database',
    look: ({ build: { service }, settings: { stateDirectory } }: Inside) =>
      checkDatabase({ receipt: { service, stateDirectory } }),
  },
  { title: 'feed', look: async (inside: Inside) => [await feed(inside)] },
  { title: 'health', look: async (inside: Inside) => [await health(inside)] },
  { title: 'holder', look: ({ environment }: Inside) => holder(environment[HOLDER] ?? '') },
]

/** `told`: what a person does instead of all that a host can do. */
export async function examineInside(build: Build, environment: Environment, told: string): Promise<Finding[]> {
  const here = ok('container', told)
  try {
    const settings = readSettings(build.service, [], environment)
    return [here, ...(await runChecks({ build, environment, settings }, CHECKS))]
  } catch (cause) {
    const hint = 'the service cannot start with this file: correct the mounted file'
    return [here, problem('configuration', reasonOf(cause), hint, 'invalid_settings')]
  }
}

async function configuration({ settings: { configPath, listeners }, environment }: Inside): Promise<Finding[]> {
  const unknown = configPath === null ? [] : (await readAccess(configPath)).unknown
  const hosts = listeners.flatMap((one) => ('host' in one ? [one.host] : []))
  const isReached = hosts.length === 0 || !hosts.every(isOnLoopback)
  const message = `the service listens on ${hosts.join(', ')}, which this container's published ports do not reach`
  const hint = `set \`listen\` to 0.0.0.0 in ${configPath ?? 'the configuration'}`
  return wrongOf(
    [
      !isReached && !environment[HOLDER] && warning('configuration', message, hint),
      ...unknown.map(({ name, expected }) => unknownSetting(name, expected, configPath ?? '')),
    ],
    ok('configuration', configPath ?? 'no file, so all settings use their defaults'),
  )
}

async function state({ stateDirectory: path }: Settings): Promise<Finding> {
  const reason = await whyNotWritable(path)
  if (reason === null) return ok('state', path)
  if (reason.includes('EROFS'))
    return problem('state', `${path} is read-only`, 'mount a volume at this path, without `:ro`')
  const found = await stat(path).catch(() => null)
  if (found === null) return problem('state', reason, 'mount a volume at this path')
  const user = process.getuid?.()
  const message = `user id ${user} cannot write to ${path}, which belongs to user id ${found.uid}`
  return problem('state', message, `change the owner of the mounted folder to ${user} on the host`)
}

async function feed({ build: { service }, settings }: Inside): Promise<Finding> {
  if (settings.feed === null) return ok('feed', 'no feed is set, so the panel does not show the newest release')
  const choice = { ...settings, feed: settings.feed }
  const name = feedName(choice)
  try {
    await using open = openFeed(choice, { service, stateDirectory: null })
    const { release, problem: why } = await open.latest(() => false)
    if (release !== null) return ok('feed', `${name} has ${release.tag}`)
    if (why === null) return warning('feed', `${name} has no release for this machine`)
    throw why
  } catch (cause) {
    return warning('feed', `${name} cannot be used: ${reasonOf(cause)}`, 'the panel does not show the newest release')
  }
}

async function health({ build, environment }: Inside): Promise<Finding> {
  try {
    return ok('health', `${await askHealth(build, [], environment)} answers`)
  } catch (cause) {
    return problem('health', reasonOf(cause), 'run `docker logs` on the host to see why', 'service_down')
  }
}

/** where the guide mounts what a holder lends */
const USUAL_HOLDER = '/run/hold/socket'
const ANSWER_MS = 2000
/** the service's, in a container */
const FIRST_PID = 1

async function holder(path: string): Promise<Finding[]> {
  if (path === '') return await forgotten()
  try {
    const names = await namesAt(path)
    const rows = (await ownPorts()).map((port) => notHeld(port, names))
    return wrongOf(rows, ok('holder', path))
  } catch (cause) {
    const hint =
      'start the holder, mount its volume in this container, and add this container to the holder group (`--group-add 65531`)'
    return [problem('holder', `${path} cannot be used: ${reasonOf(cause)}`, hint, 'service_down')]
  }
}

/** A holder that is mounted and not asked: the service is refused clients at each replacement, as without one. */
async function forgotten(): Promise<Finding[]> {
  const message = `a holder is mounted at ${USUAL_HOLDER}, but ${HOLDER} does not point to it`
  const hint = `start the container with \`-e ${HOLDER}=${USUAL_HOLDER}\``
  return (await exists(USUAL_HOLDER)) ? [warning('holder', message, hint)] : []
}

/** The ports that the service listens on for others, here and wherever its holder is. */
async function ownPorts(): Promise<number[]> {
  const bound = await boundSockets(FIRST_PID, await openFilesBelow(FIRST_PID), 'tcp')
  return bound.flatMap(({ port, isListening, isOnLoopback: isInner }) => (isListening && !isInner ? [port] : []))
}

/** A holder greets whoever connects with its names. */
async function namesAt(path: string): Promise<string[]> {
  const link = connect({ path, timeout: ANSWER_MS })
  link.once('timeout', () => link.destroy(new Error(`no answer after ${ANSWER_MS} ms`)))
  try {
    const [greeting] = (await once(link, 'data')) as [Buffer]
    return namesInGreeting(greeting.toString('latin1'))
  } finally {
    link.destroy()
  }
}

function notHeld(port: number, names: readonly string[]): Wrong {
  if (names.some((name) => name === String(port) || name.endsWith(`:${port}`))) return null
  const message = `the service listens on port ${port}, but the holder has only ${names.join(', ')}: clients cannot reach it through the holder`
  return warning('holder', message, `recreate the holder with port ${port} added`)
}
