// Reads from the service's configuration file what a command needs. The service owns that file and can write anything into it, so
// only a process of the service's user reads it.

import { readFile } from 'node:fs/promises'
import { ownRelease, type Receipt, rulesOf, UPDATE_BOUNDS } from '../../../agent/install.ts'
import {
  BatonError,
  codeOf,
  type FeedChoice,
  formatUnknown,
  type Listen,
  msOf,
  readConfiguration,
  type Reading,
  reasonOf,
} from '../../../agent/words.ts'
import { nearestOf } from '../../lib/flags.ts'
import type { Address } from '../../lib/http.ts'

/** How a command reaches the service. */
export interface Access {
  /** `isEverywhere`: it is to listen at every address, and this is one of them */
  address: Address & { isEverywhere: boolean }
  basePath: string
  token: string | null
  /** members of `update` and `listen` that nothing reads, such as `update.probationMS`, and others that are like one that is known */
  unknown: Reading['unknown']
  /** for which the service would not start */
  faults: string[]
}

/** Reads the service's configuration file. Throws BatonError refused without access to it, else invalid_settings. */
export async function readAccess(configPath: string): Promise<Access> {
  let text: string
  try {
    text = await readFile(configPath, 'utf8')
  } catch (error) {
    if (codeOf(error) === 'EACCES') {
      throw new BatonError('refused', `reading the configuration ${configPath}: ${reasonOf(error)}`, {
        cause: error,
        hint: 'run the command as root, or as the user that installed the service',
      })
    }
    throw new BatonError('invalid_settings', `reading the configuration ${configPath}: ${reasonOf(error)}`)
  }
  const { isRead, configuration, faults, unknown } = readConfiguration(text)
  // the reference service refuses them (agent/service/config.ts); in an author's they may be the author's own
  const isOurs = ownRelease().kind === 'source'
  if (isOurs) faults.push(...unknown.map(formatUnknown))
  if (isRead) return accessFrom({ configuration, faults, unknown: isOurs ? [] : unknown })
  throw new BatonError('invalid_settings', `reading the configuration ${configPath}: ${faults.join('; ')}`)
}

/** Pure. Throws invalid_settings. */
export function assertValid({ configPath }: Pick<Receipt, 'configPath'>, { faults }: Pick<Access, 'faults'>): void {
  if (faults.length > 0)
    throw new BatonError('invalid_settings', `the configuration ${configPath} is not valid: ${faults.join('; ')}`)
}

/** Pure. Takes the first listener without TLS, else the first one. */
export function accessFrom({ configuration, faults, unknown }: Omit<Reading, 'isRead'>): Access {
  const { listen, dashboard, basePath = '' } = configuration
  const addresses = listen.map(addressFrom)
  return {
    address: addresses.find(({ tls }) => !tls) ?? addresses[0] ?? addressFrom({}),
    basePath: basePath === '/' ? '' : basePath,
    token: dashboard?.password === undefined || dashboard.password === '' ? null : dashboard.password,
    unknown: unknown.filter(({ name, expected }) => /^(update|listen)\b/.test(name) || isTypo(name, expected)),
    faults,
  }
}

/** Where releases are looked for, as the operator has set it in the configuration; the feed is else the receipt's. */
export async function feedOf(receipt: Pick<Receipt, 'configPath' | 'feed'>): Promise<FeedChoice> {
  // `readAccess` complains
  const text = await readFile(receipt.configPath, 'utf8').catch(() => '')
  const { feed = receipt.feed, channel, downloadPrefix } = readConfiguration(text).configuration
  return { feed, channel, downloadPrefix }
}

/** Milliseconds that a release may take until it serves, as the service itself reckons. */
export async function readyMsFor(receipt: Pick<Receipt, 'configPath'>): Promise<number> {
  return (await readyMsOf(receipt)) ?? UPDATE_BOUNDS.readyMs[2]
}

/** `update.readyTimeout` of the configuration: milliseconds that a release may take until it serves. Null: it is not there. */
export async function readyMsOf({ configPath }: Pick<Receipt, 'configPath'>): Promise<number | null> {
  const text = await readFile(configPath, 'utf8').catch(() => '')
  const { readyTimeout } = readConfiguration(text).configuration.update ?? {}
  return readyTimeout === undefined ? null : msOf(readyTimeout)
}

/** Other parts of the file may be the author's own. */
function isTypo(name: string, expected: readonly string[]): boolean {
  return nearestOf(name.split('.').at(-1) ?? '', expected, 2) !== null
}

function addressFrom({ host = '127.0.0.1', port = 8080, path, tls }: Listen): Access['address'] {
  if (path !== undefined) return { path, isEverywhere: false, tls: tls !== undefined }
  const everywhere: Record<string, string> = { '0.0.0.0': '127.0.0.1', '::': '::1' }
  const isEverywhere = Object.hasOwn(everywhere, host)
  return { host: everywhere[host] ?? host, isEverywhere, port, tls: tls !== undefined }
}

/** Why automatic updates, although they are on, would never install anything; null: they may. `signed`: whether the feed is. */
export async function whyNothingAutomatic(receipt: Receipt, signed: boolean): Promise<string | null> {
  const { mode, allow } = (await rulesOf({ receipt, stateDirectory: receipt.stateDirectory })).policy
  if (signed || mode === 'off' || mode === 'notify' || allow.includes('unsigned')) return null
  return 'nothing will be installed automatically: the feed is not signed, and `update.auto.allow` does not list `unsigned`'
}
