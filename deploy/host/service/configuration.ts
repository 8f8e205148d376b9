// Reads from the service's configuration file what a command needs. The service owns that file and can write anything into it, so
// only a process of the service's user reads it.

import { readFile } from 'node:fs/promises'
import { type Receipt, UPDATE_BOUNDS } from '../../../agent/install.ts'
import { BatonError, reasonOf } from '../../../agent/words.ts'
import type { Address } from '../../lib/http.ts'

/** all members of `update` and `listen`, which belong to Baton alone, that anything reads */
export const KNOWN = {
  update: [...Object.keys(UPDATE_BOUNDS), 'busy', 'rehearse', 'auto', 'onOutcome'],
  listen: ['host', 'port', 'path', 'tls'],
}
const NAME_MAX = 40

/** How a command reaches the service. */
export interface Access {
  /** `isEverywhere`: it is to listen at every address, and this is one of them */
  address: Address & { isEverywhere: boolean }
  basePath: string
  token: string | null
  /** members of `update` and `listen` that nothing reads, such as `update.probationMS`; other parts may be the author's own */
  unknown: string[]
}

/** Reads the service's configuration file. Throws BatonError refused without access to it, else invalid_settings. */
export async function readAccess(configPath: string): Promise<Access> {
  let value: unknown
  try {
    value = JSON.parse(await readFile(configPath, 'utf8'))
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'EACCES') {
      throw new BatonError('refused', `reading the configuration ${configPath}: ${reasonOf(error)}`, {
        cause: error,
        hint: 'run it as root, or as the user that installed the service',
      })
    }
    // the parser quotes the text, and the text holds the password
    const reason = error instanceof SyntaxError ? 'expected JSON' : reasonOf(error)
    throw new BatonError('invalid_settings', `reading the configuration ${configPath}: ${reason}`)
  }
  return accessFrom(value)
}

/** Pure. Takes the first listener without TLS, else the first one. */
export function accessFrom(value: unknown): Access {
  const config = recordOf(value)
  const listen = config['listen'] ?? { host: '127.0.0.1', port: 8080 }
  const listeners = (Array.isArray(listen) ? listen : [listen]).map(addressFrom)
  const { password } = recordOf(config['dashboard'])
  const basePath = config['basePath']
  return {
    address: listeners.find(({ tls }) => !tls) ?? listeners[0] ?? addressFrom({}),
    basePath: typeof basePath === 'string' && basePath !== '/' ? basePath : '',
    token: typeof password === 'string' && password !== '' ? password : null,
    unknown: [
      ...unknownIn('update', config['update']),
      ...(Array.isArray(listen) ? listen : [listen]).flatMap((one) => unknownIn('listen', one)),
    ],
  }
}

function unknownIn(name: keyof typeof KNOWN, value: unknown): string[] {
  const others = Object.keys(recordOf(value)).filter((key) => !KNOWN[name].includes(key))
  return others.map((key) => `${name}.${key.slice(0, NAME_MAX)}`)
}

/** The feed of the configuration, if the operator has set one there; else the receipt's. */
export async function feedOf(receipt: Pick<Receipt, 'configPath' | 'feed'>): Promise<string> {
  try {
    const { feed } = recordOf(JSON.parse(await readFile(receipt.configPath, 'utf8')))
    if (typeof feed === 'string' && feed !== '') return feed
  } catch {
    // `readAccess` complains
  }
  return receipt.feed
}

function addressFrom(value: unknown): Access['address'] {
  const { host, port, path, tls } = recordOf(value)
  const secure = typeof tls === 'object' && tls !== null
  if (typeof path === 'string') return { path, isEverywhere: false, tls: secure }
  const name = typeof host === 'string' ? host : '127.0.0.1'
  const everywhere: Record<string, string> = { '0.0.0.0': '127.0.0.1', '::': '::1' }
  const isEverywhere = Object.hasOwn(everywhere, name)
  return { host: everywhere[name] ?? name, isEverywhere, port: Number(port ?? 8080), tls: secure }
}

function recordOf(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {}
}
