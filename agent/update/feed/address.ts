// Decides which addresses a request may go to. Must hold: plain http goes only to this machine; no redirect and no asset leads from
// https to http, or from the feed into this host's own network; a name such as `localhost.example.org` is not this machine; no
// message shows a credential.

import { lookup } from 'node:dns'
import type { LookupAddress, LookupOptions } from 'node:dns'
import { BlockList, isIP } from 'node:net'
import { BatonError } from '../../words/errors.ts'
import type { ErrorCode } from '../../words/errors.ts'

/** Which network an address belongs to, as far as the address itself shows. */
export type Reach = 'loopback' | 'link-local' | 'private' | 'public'

/** Whether `hostname` (as `URL` gives it) is this machine: a loopback address, or the name that RFC 6761 reserves. */
export function isLoopback(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127(\.\d{1,3}){3}$/.test(hostname)
}

const RANGES: [Exclude<Reach, 'public'>, string[]][] = [
  ['loopback', ['127.0.0.0/8', '0.0.0.0/8', '::1/128', '::/128']],
  ['link-local', ['169.254.0.0/16', 'fe80::/10']],
  // RFC 1918, 6598 (also overlay networks), 6890; multicast and reserved; unique local; a network's own NAT64 (RFC 8215); Teredo.
  // Not 198.18.0.0/15: proxies that answer each name with an address of their own use it, for public names too
  [
    'private',
    ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', '100.64.0.0/10', '192.0.0.0/24', '224.0.0.0/3'].concat([
      'fc00::/7',
      'fec0::/10',
      'ff00::/8',
      '64:ff9b:1::/48',
      '2001::/32',
    ]),
  ],
]

const LISTS = RANGES.map(([reach, subnets]) => {
  const list = new BlockList()
  for (const subnet of subnets) {
    const [net = '', prefix = ''] = subnet.split('/')
    list.addSubnet(net, Number(prefix), net.includes(':') ? 'ipv6' : 'ipv4')
  }
  return { reach, list }
})

/** The reach of an IP address without brackets. An IPv6 address that only wraps an IPv4 address has the reach of that one. */
export function reachOf(address: string): Reach {
  const plain = isIP(address) === 6 ? (wrappedIn(address) ?? address) : address
  const family = isIP(plain) === 6 ? 'ipv6' : 'ipv4'
  return LISTS.find(({ list }) => list.check(plain, family))?.reach ?? 'public'
}

/** The IPv4 address in a mapped (::ffff:0:0/96), compatible (::/96), NAT64 (64:ff9b::/96, RFC 6052) or 6to4 (2002::/16) one; else null. */
function wrappedIn(address: string): string | null {
  const host = URL.parse(`http://[${address.replace(/%.*$/, '')}]`)?.hostname ?? ''
  const [head = '', tail = ''] = host.slice(1, -1).split('::')
  const [front, back] = [head, tail].map((half) =>
    half === '' ? [] : half.split(':').map((part) => Number.parseInt(part, 16)),
  ) as [number[], number[]]
  const parts = [...front, ...Array.from({ length: 8 - front.length - back.length }, () => 0), ...back]
  const dotted = (at: number) =>
    parts
      .slice(at, at + 2)
      .flatMap((part) => [part >> 8, part & 255])
      .join('.')
  if (parts[0] === 0x2002) return dotted(1)
  const prefix = parts.slice(0, 6).join()
  const wraps = [
    [0, 0, 0, 0, 0, 0xffff],
    [0, 0, 0, 0, 0, 0],
    [0x64, 0xff9b, 0, 0, 0, 0],
  ].some((one) => one.join() === prefix)
  // :: and ::1 are IPv6's own
  return wraps && !(prefix === '0,0,0,0,0,0' && parts[6] === 0 && (parts[7] ?? 0) < 2) ? dotted(6) : null
}

/** The addresses that requests may go to: public ones, and those with the same reach as the feed. One for each feed. */
export interface Neighbourhood {
  /** Checks a literal address in `url`; a name is checked when it is looked up. Throws BatonError `failure`. */
  check(url: URL, failure: ErrorCode): void
  /** As `dns.lookup`; fails if a name other than the feed's own leads to an address that is not allowed. */
  lookup(hostname: string, options: LookupOptions, done: Looked): void
}

type Looked = (error: Error | null, address: string | LookupAddress[], family?: number) => void

/** `homes`: the addresses in the feed's setting. */
export function neighbourhoodOf(homes: readonly string[]): Neighbourhood {
  const isPlain = homes.some((home) => new URL(home).protocol === 'http:')
  const names = new Set(homes.map((home) => new URL(home).hostname))
  const allowed = new Set<Reach>(['public'])
  for (const name of names) if (isLiteral(name)) allowed.add(reachOf(plain(name)))
  if ([...names].some(isLoopback)) allowed.add('loopback')
  const refusal = (host: string, reach: Reach): string =>
    `the feed points to \`${host}\`: expected a public address, got a ${reach} one`
  return {
    check(url, failure) {
      const { hostname, protocol } = url
      if (protocol === 'http:' && !isPlain) {
        throw new BatonError(failure, `the feed uses https but links to a plain http address: ${shown(url)}`)
      }
      if (names.has(hostname)) return
      const reach = isLoopback(hostname) ? 'loopback' : isLiteral(hostname) ? reachOf(plain(hostname)) : 'public'
      if (!allowed.has(reach)) throw new BatonError(failure, refusal(hostname, reach))
    },
    lookup(hostname, options, done) {
      lookup(hostname, { ...options, all: true }, (error, found) => {
        if (error !== null) return done(error, [])
        const reaches = found.map(({ address }) => reachOf(address))
        if (names.has(hostname)) for (const reach of reaches) allowed.add(reach)
        const bad = reaches.find((reach) => !allowed.has(reach))
        const [first] = found
        if (bad !== undefined || first === undefined) return done(new Error(refusal(hostname, bad ?? 'public')), [])
        if (options.all === true) done(null, found)
        else done(null, first.address, first.family)
      })
    },
  }
}

function isLiteral(hostname: string): boolean {
  return isIP(plain(hostname)) !== 0
}

function plain(hostname: string): string {
  return hostname.replace(/^\[|\]$/g, '')
}

/** Parses an address. Throws BatonError `failure` if a request must not go there. `base`: the URL that redirected to it. */
export function parsedUrl(text: string, failure: ErrorCode, base?: URL): URL {
  const url = URL.parse(text, base)
  const whence = base === undefined ? '' : ` (redirected from ${shown(base)})`
  if (url === null) throw new BatonError(failure, `expected a URL, got something else${whence}`)
  if (url.protocol !== 'https:' && url.protocol !== 'http:') {
    throw new BatonError(failure, `expected an https address, got one with \`${url.protocol}\`${whence}`)
  }
  if (url.protocol === 'http:' && !isLoopback(url.hostname)) {
    throw new BatonError(
      failure,
      `plain http is allowed only for addresses on this machine, got ${shown(url)}${whence}`,
    )
  }
  if (url.protocol === 'http:' && base?.protocol === 'https:') {
    throw new BatonError(failure, `${shown(base)} redirects from https to plain http: ${shown(url)}`)
  }
  url.hash = ''
  url.username = ''
  url.password = ''
  return url
}

/** For messages: no credentials, no query (GitHub signs its download links there). */
export function shown(url: string | URL): string {
  const { protocol, host, pathname } = new URL(url)
  return `\`${protocol}//${host}${pathname.length > 120 ? `${pathname.slice(0, 120)}…` : pathname}\``
}
