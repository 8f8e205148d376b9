// The environment of the service's process, so that a worker uses the same certificates and the same proxy.
// Must hold: of root's environment, only the variables named here are passed on.

import { readFile } from 'node:fs/promises'
import { BASE_ENVIRONMENT, isPassed } from '../../lib/passed.ts'
import { trustIn } from '../../lib/trusted.ts'
import { showUnit } from '../supervisor/systemd.ts'
import type { Environment, Scope } from '../place/choices.ts'
import { homeOf } from '../place/identity.ts'
import { ENVIRONMENT_FILE_MAX_BYTES, environmentFrom, parseEnvironmentFile } from '../place/environment-file.ts'

/** `file`: the operator's environment file, read only if nobody but root can write it. */
export async function serviceEnvironment(
  service: string,
  withUnit: boolean,
  file: string,
  user: string,
  own: Environment,
): Promise<Record<string, string>> {
  const home = await homeOf(user)
  const base = { ...BASE_ENVIRONMENT, ...(home === null ? {} : { HOME: home }) }
  if (!withUnit) return { ...base, ...passed(service, own), ...parseEnvironmentFile(await trustedText(file)) }
  return { ...base, ...(await unitEnvironment('system', service, trustedText)) }
}

/**
 * The environment of the service for a person who is its user already: what its unit sets, or its environment file, wins over `own`. `note`:
 * told what cannot be read.
 */
export async function environmentBeside(
  {
    service,
    scope,
    withUnit,
    environmentFile,
  }: { service: string; scope: Scope; withUnit: boolean; environmentFile: string },
  own: NodeJS.ProcessEnv,
  note: (line: string) => unknown,
): Promise<NodeJS.ProcessEnv> {
  if (!withUnit) return { ...own, ...(await environmentFrom(environmentFile, note)) }
  const read = async (path: string) =>
    await readFile(path, 'utf8').catch(async (cause: NodeJS.ErrnoException) => {
      if (cause.code !== 'ENOENT') await note(`warning: ${path} cannot be read, so its settings are ignored`)
      return ''
    })
  return { ...own, ...(await unitEnvironment(scope, service, read)) }
}

/** What the unit sets, drop-ins included. `read`: the text of an environment file, '' if it does not count. */
async function unitEnvironment(
  scope: Scope,
  service: string,
  read: (path: string) => Promise<string>,
): Promise<Record<string, string>> {
  const unit = await showUnit(scope, `${service}.service`, ['Environment', 'EnvironmentFiles'])
  const found = parseEnvironment(unit['Environment'] ?? '')
  for (const path of environmentFiles(unit['EnvironmentFiles'] ?? ''))
    Object.assign(found, parseEnvironmentFile(await read(path)))
  return found
}

/** Pure: systemd's `Environment=` as `systemctl show` prints it: words, quoted if they hold spaces. */
export function parseEnvironment(text: string): Record<string, string> {
  const words = text.match(/"(?:[^"\\]|\\.)*"|\S+/g) ?? []
  return fromPairs(words.map((word) => (word.startsWith('"') ? word.slice(1, -1).replaceAll(/\\(.)/g, '$1') : word)))
}

/** Pure: `/etc/default/x (ignore_errors=yes)`, one or several. */
export function environmentFiles(text: string): string[] {
  return [...text.matchAll(/(\/\S+) \(ignore_errors=\w+\)/g)].map(([, path = '']) => path)
}

function fromPairs(pairs: readonly string[]): Record<string, string> {
  const found: Record<string, string> = {}
  for (const pair of pairs) {
    const [, name, value] = /^([A-Za-z_]\w*)=(.*)$/s.exec(pair) ?? []
    if (name !== undefined && value !== undefined) found[name] = value
  }
  return found
}

function passed(service: string, own: Environment): Record<string, string> {
  const prefix = `${service.toUpperCase().replaceAll(/[^A-Z0-9]/g, '_')}_`
  const isOwn = (name: string) => name.startsWith(prefix) && !name.startsWith(`${prefix}INSTALL_`)
  const found = Object.entries(own).filter(([name, value]) => value !== undefined && (isPassed(name) || isOwn(name)))
  return Object.fromEntries(found) as Record<string, string>
}

async function trustedText(path: string): Promise<string> {
  const trust = await trustIn(path)
  if (!trust.trusted || trust.found?.isFile() !== true || trust.found.size > ENVIRONMENT_FILE_MAX_BYTES) return ''
  return await readFile(path, 'utf8')
}
