// The kernel's tables of the sockets of a network namespace. Reads /proc only. Must hold: where it cannot be read, it is empty.

import { isIPv4 } from 'node:net'
import { readProc } from './proc.ts'

/** A line of /proc/net/tcp, udp, tcp6 or udp6. */
export interface TableEntry {
  /** in the form of `entryEnd` */
  local: string
  remote: string
  port: number
  isListening: boolean
  uid: number
  inode: string
}

/** in the column `st` */
const LISTENING = '0A'
/** how an IPv4 address stands in the tables of IPv6, on the processors that Node is built for */
const MAPPED = '0000000000000000FFFF0000'
/** every address, of each kind */
export const EVERYWHERE = [`${MAPPED}${'0'.repeat(8)}`, '0'.repeat(32)] as const

/** `pid`: a process in whose network they are. */
export async function socketTable(name: 'tcp' | 'udp', pid: number | 'self' = 'self'): Promise<TableEntry[]> {
  const both = [name, `${name}6`].map((table) => readProc(`/proc/${pid}/net/${table}`))
  return (await Promise.all(both)).flatMap((table) => table.trimEnd().split('\n').slice(1).map(entryOf))
}

function entryOf(line: string): TableEntry {
  const [, local = '', remote = '', state = '', , , , uid = '', , inode = ''] = line.trim().split(/\s+/)
  const port = Number.parseInt(local.split(':')[1] ?? '', 16)
  return { local: wide(local), remote: wide(remote), port, isListening: state === LISTENING, uid: Number(uid), inode }
}

const wide = (end: string) => (end.length > 32 ? end : MAPPED + end)

/** One end of a connection, as the tables name it: in 32-bit words, each with its last byte first. */
export function entryEnd(address: string, port: number): string {
  const bytes = Buffer.from(isIPv4(address) ? address.split('.').map(Number) : bytesOf(address))
  return wide(`${bytes.swap32().toString('hex').toUpperCase()}:${hexOf(port)}`)
}

/** `end`: as the tables name it. */
export function endsAtLoopback(end: string): boolean {
  return new RegExp(`^(${MAPPED}.{6}7F|0{24}01000000):`).test(end)
}

export const hexOf = (port: number) => port.toString(16).toUpperCase().padStart(4, '0')

function bytesOf(ipv6: string): number[] {
  // `URL` writes one form for each address
  const [head = '', tail = ''] = new URL(`http://[${ipv6.split('%')[0]}]`).hostname.slice(1, -1).split('::')
  const groupsIn = (part: string) => part.split(':').filter((group) => group !== '')
  const [left, right] = [groupsIn(head), groupsIn(tail)]
  const zeros = Array<string>(8 - left.length - right.length).fill('0')
  return [...left, ...zeros, ...right].flatMap((group) => {
    const number = Number.parseInt(group, 16)
    return [number >> 8, number & 255]
  })
}
