// Finds the client's address, for the throttle: the connection's address or, behind a trusted proxy, the one that the proxy
// names. Must hold: a header counts only if it comes from an address that the setting names.

import type { IncomingHttpHeaders } from 'node:http'
import { BlockList, isIP } from 'node:net'
import { networkOf, type TrustedProxy } from './trusted-proxy.ts'

interface Asking {
  headers: IncomingHttpHeaders
  socket: { remoteAddress?: string | undefined }
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
