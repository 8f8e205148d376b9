// Finds the client's address, for the throttle: the connection's address or, behind a trusted proxy, the one that the proxy
// names. Must hold: a header counts only if it comes from an address that the setting names.

import type { IncomingHttpHeaders } from 'node:http'
import { BlockList, isIP } from 'node:net'

export interface TrustedProxy {
  /** addresses, networks such as `10.0.0.0/8`, or `unix` for a proxy on the unix socket; 1 to 64 */
  from: readonly string[]
  /** header in which the proxy names the client: `x-forwarded-for`, `forwarded`, `x-real-ip`, … */
  header: string
}

interface Asking {
  headers: IncomingHttpHeaders
  socket: { remoteAddress?: string | undefined }
}

/** The fault of the setting, or null. */
export function trustedProxyFault({ from, header }: TrustedProxy): string | null {
  if (typeof header !== 'string' || !/^[a-z0-9-]{1,64}$/i.test(header))
    return 'expected the name of a header in `header`'
  if (!Array.isArray(from) || from.length < 1 || from.length > 64) return 'expected 1 to 64 addresses in `from`'
  const wrong = from.find((entry) => entry !== 'unix' && networkOf(entry) === null)
  return wrong === undefined
    ? null
    : `expected addresses, networks or \`unix\` in \`from\`, got ${JSON.stringify(wrong)}`
}

/** The address to count failures by. IPv6 counts by its /64, which is one customer; `unix` if there is no address. */
export function clientAddresses(trusted: TrustedProxy | null): (request: Asking) => string {
  const networks = new BlockList()
  for (const entry of trusted?.from ?? []) {
    const network = networkOf(entry)
    if (network !== null) networks.addSubnet(network.address, network.prefix, network.family)
  }
  const isTrusted = (address: string): boolean =>
    isIP(address) === 0
      ? address === 'unix' && trusted?.from.includes('unix') === true
      : networks.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4')

  return ({ headers, socket }) => {
    let address = plain(socket.remoteAddress ?? 'unix')
    if (trusted === null) return counted(address)
    const value = headers[trusted.header.toLowerCase()]
    // Nearest first: each trusted proxy names the next address. Beyond the first untrusted address, the header proves nothing.
    const named = namesIn(Array.isArray(value) ? value.join(',') : (value ?? ''), trusted.header).toReversed()
    for (const next of named) {
      if (!isTrusted(address) || isIP(next) === 0) break
      address = next
    }
    return counted(address)
  }
}

const NAMES_MAX_BYTES = 4096

function namesIn(value: string, header: string): string[] {
  // The nearest proxy has written the end: keep the end, however much the client wrote before it.
  const names = value.slice(-NAMES_MAX_BYTES).split(',')
  const forwarded = header.toLowerCase() === 'forwarded' // RFC 7239
  return names.map((name) => {
    const text = forwarded ? (/\bfor=("?)([^";,]*)\1/i.exec(name)?.[2] ?? '') : name.trim()
    // a port may follow: `192.0.2.1:4711`, `[2001:db8::1]:4711`
    return plain(text.replace(/^\[([^\]]*)\](:\d+)?$/, '$1').replace(/^(\d+(?:\.\d+){3}):\d+$/, '$1'))
  })
}

function plain(address: string): string {
  return address.replace(/^::ffff:(?=\d+\.)/i, '')
}

function counted(address: string): string {
  if (isIP(address) !== 6) return address
  const [head = '', tail] = address.split('%', 1)[0]?.split('::') ?? []
  const left = head === '' ? [] : head.split(':')
  const right = tail === undefined || tail === '' ? [] : tail.split(':')
  const groups =
    tail === undefined ? left : [...left, ...Array<string>(8 - left.length - right.length).fill('0'), ...right]
  return `${groups
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':')}::/64`
}

function networkOf(entry: string): { address: string; prefix: number; family: 'ipv4' | 'ipv6' } | null {
  const [address = '', prefix, more] = typeof entry === 'string' ? entry.split('/') : []
  const version = isIP(address)
  if (version === 0 || more !== undefined) return null
  const bits = version === 4 ? 32 : 128
  const length = prefix === undefined ? bits : /^\d{1,3}$/.test(prefix) ? Number(prefix) : Number.NaN
  if (!(length >= 0 && length <= bits)) return null
  return { address, prefix: length, family: version === 4 ? 'ipv4' : 'ipv6' }
}
