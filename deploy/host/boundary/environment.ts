// The environment of the service's process, so that a worker uses the same certificates and the same proxy.
// Must hold: of root's environment, only the variables named here are passed on.

import { readFile } from 'node:fs/promises'
import { BASE_ENVIRONMENT, isPassed } from '../../lib/passed.ts'
import { trustIn } from '../../lib/trusted.ts'
import { showUnit } from '../supervisor/systemd.ts'
import type { Environment } from '../place/choices.ts'

const FILE_MAX_BYTES = 256 * 1024

/** `file`: the operator's environment file, read only if nobody but root can write it. */
export async function serviceEnvironment(
  service: string,
  withUnit: boolean,
  file: string,
  own: Environment,
): Promise<Record<string, string>> {
  if (!withUnit)
    return { ...BASE_ENVIRONMENT, ...passed(service, own), ...parseEnvironmentFile(await trustedText(file)) }
  return { ...BASE_ENVIRONMENT, ...(await unitEnvironment('system', service, trustedText)) }
}

/** What the unit sets, drop-ins included. `read`: the text of an environment file, '' if it does not count. */
export async function unitEnvironment(
  scope: 'system' | 'user',
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

/** Pure: systemd.exec(5), EnvironmentFile=; continued lines are not supported. */
export function parseEnvironmentFile(text: string): Record<string, string> {
  const lines = text.split('\n').map((line) => line.trim())
  return fromPairs(
    lines
      .filter((line) => line !== '' && !/^[#;]/.test(line))
      .map((line) => line.replace(/^([^=]+)=(["'])(.*)\2$/, '$1=$3')),
  )
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
  if (!trust.trusted || trust.found?.isFile() !== true || trust.found.size > FILE_MAX_BYTES) return ''
  return await readFile(path, 'utf8')
}
