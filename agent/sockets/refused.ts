// The error that Node gives where nobody listens, for an application that asks so whether its own port is free.

import { constants } from 'node:os'

export function refused({
  host = '',
  port = 0,
  path,
}: {
  host?: string
  port?: number
  path?: string
}): NodeJS.ErrnoException {
  const at = path ?? `${host === 'localhost' ? '127.0.0.1' : host}:${port}`
  const address = path === undefined ? { address: host === 'localhost' ? '127.0.0.1' : host, port } : { address: path }
  const known = { code: 'ECONNREFUSED', errno: -constants.errno.ECONNREFUSED, syscall: 'connect', ...address }
  return Object.assign(new Error(`connect ECONNREFUSED ${at}`), known)
}
