// The errors that an application sees of an address: it cannot be bound, or nobody listens there.

import { codeOf } from '../words/errors.ts'
import { isIP } from 'node:net'
import { constants } from 'node:os'

/** ports below it are for whoever has CAP_NET_BIND_SERVICE: ip(7) */
const LOW_PORTS_END = 1024

/** The error of binding a port: with the way, if the port is the reason. In the message, because an author who handles the error prints no more. Pure. */
export function deniedPort(cause: unknown, host: string, port: number): unknown {
  if (codeOf(cause) !== 'EACCES' || port >= LOW_PORTS_END) return cause
  const where = `${isIP(host) === 6 ? `[${host}]` : host}:${port}`
  const why = `EACCES: a port below ${LOW_PORTS_END} needs CAP_NET_BIND_SERVICE; run \`install --listen ${where}\` as root to add it to the unit; it takes effect at the next start`
  return Object.assign(new Error(why, { cause }), { code: 'EACCES', syscall: 'bind', address: host, port })
}

export function taken(why = 'another process is already listening on this address'): Error {
  return Object.assign(new Error(`EADDRINUSE, ${why}`), { code: 'EADDRINUSE' })
}

/** As Node's, for an application that asks so whether its own port is free. */
export function refused({ host = '', port = 0, path }: { host?: string; port?: number; path?: string }): Error {
  const at = path ?? `${host === 'localhost' ? '127.0.0.1' : host}:${port}`
  const address = path === undefined ? { address: host === 'localhost' ? '127.0.0.1' : host, port } : { address: path }
  const known = { code: 'ECONNREFUSED', errno: -constants.errno.ECONNREFUSED, syscall: 'connect', ...address }
  return Object.assign(new Error(`connect ECONNREFUSED ${at}`), known)
}
