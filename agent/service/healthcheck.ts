// `beacon healthcheck`: runs beside the service in the container and asks it, at the address in the configuration, whether it is
// healthy. If so, prints the service and version that answered and exits 0. If not, prints the reason and exits 1.

import { BatonError, reasonOf } from '../words.ts'
import { askHere, ownRelease } from '../first.ts'
import type { Build } from './build.ts'
import { type Environment, type Listener, readSettings } from './config.ts'

const TIMEOUT_MS = 4000
const ANSWER_MAX_BYTES = 64 * 1024

export async function healthcheck(build: Build, argv: readonly string[], environment: Environment): Promise<number> {
  try {
    process.stdout.write(`${await askHealth(build, argv, environment)}\n`)
    return 0
  } catch (error) {
    process.stdout.write(`${reasonOf(error)}\n`)
    return 1
  }
}

/** Resolves to the service and version that has answered; rejects if it is not healthy. */
export async function askHealth(build: Build, argv: readonly string[], environment: Environment): Promise<string> {
  const [listener] = readSettings(build.service, argv, environment).listeners
  if (listener === undefined) throw new BatonError('invalid_settings', 'the configuration has no address to listen on')
  const { status, body } = await get(listener)
  // an application without a health route is asked for `/`; any status from 200 to 499 is healthy
  const { kind, healthPath } = ownRelease()
  const most = kind !== 'source' && healthPath === null ? 499 : 299
  if (status < 200 || status > most)
    throw new BatonError(
      'service_down',
      `expected a status from 200 to ${most}, got ${status}; body: ${body.slice(0, 200) || 'none'}`,
    )
  const { service, tag } = asBuild(body) ?? build // the process that answered, if the answer names it
  return `${service} ${tag}`
}

async function get({ tls, ...at }: Listener): Promise<{ status: number; body: string }> {
  const place = 'path' in at ? at : { host: reachable(at.host), port: at.port }
  const path = ownRelease().healthPath ?? (ownRelease().kind === 'source' ? '/healthz' : '/')
  const late = AbortSignal.timeout(TIMEOUT_MS)
  try {
    using answer = await askHere(place, { path, signal: late, tls: tls !== null })
    let body = ''
    for await (const chunk of answer.body) {
      body += String(chunk)
      if (body.length > ANSWER_MAX_BYTES) throw new Error(`the response is longer than ${ANSWER_MAX_BYTES} bytes`)
    }
    return { status: answer.status, body }
  } catch (cause) {
    if (late.aborted) throw new Error(`no answer after ${TIMEOUT_MS} ms`, { cause })
    throw cause
  }
}

function asBuild(body: string): Build | null {
  try {
    const { service, tag } = JSON.parse(body) as Partial<Build>
    return typeof service === 'string' && typeof tag === 'string' ? { service, tag } : null
  } catch {
    return null // an answer for people, not JSON
  }
}

/** The address to ask: a wildcard address cannot be asked, so this gives its loopback address. */
function reachable(host: string): string {
  return host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host
}
