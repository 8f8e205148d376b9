// The setting that names the proxies in front, checked at the start. What it is for, client-address.ts, is loaded at the first request.

import { isIP } from 'node:net'

export interface TrustedProxy {
  /** addresses, networks such as `10.0.0.0/8`, or `unix` for a proxy on the unix socket; 1 to 64 */
  from: readonly string[]
  /** header in which the proxy names the client: `x-forwarded-for`, `forwarded`, `x-real-ip`, … */
  header: string
}

/** The fault of the setting, or null. */
export function trustedProxyFault({ from, header }: TrustedProxy): string | null {
  if (typeof header !== 'string' || !/^[a-z0-9-]{1,64}$/i.test(header)) return 'expected a header name in `header`'
  if (!Array.isArray(from) || from.length < 1 || from.length > 64) return 'expected 1 to 64 addresses in `from`'
  const wrong = from.find((entry) => entry !== 'unix' && networkOf(entry) === null)
  return wrong === undefined
    ? null
    : `expected addresses, networks or \`unix\` in \`from\`, got ${JSON.stringify(wrong)}`
}

/** Null: it is neither an address nor a network. */
export function networkOf(entry: string): { address: string; prefix: number; family: 'ipv4' | 'ipv6' } | null {
  const [address = '', prefix, more] = typeof entry === 'string' ? entry.split('/') : []
  const version = isIP(address)
  if (version === 0 || more !== undefined) return null
  const bits = version === 4 ? 32 : 128
  const length = prefix === undefined ? bits : /^\d{1,3}$/.test(prefix) ? Number(prefix) : Number.NaN
  if (!(length >= 0 && length <= bits)) return null
  return { address, prefix: length, family: version === 4 ? 'ipv4' : 'ipv6' }
}
