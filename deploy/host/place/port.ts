// Whether the address that a service is going to listen at is free, and whether what listens there keeps to it.

import { createServer } from 'node:net'
import { isAny } from '../../../agent/install.ts'
import { BatonError } from '../../../agent/words.ts'
import { listensEverywhere } from '../../lib/open-files.ts'
import { formatListen, parseListen } from './choices.ts'

/** how many ports after the one that is taken are tried for a hint */
const NEXT_PORTS = 50

/** False only if a program listens there: what this user may not listen at counts as free. */
export async function isFree(host: string, port: number): Promise<boolean> {
  if (port === 0) return true
  return await new Promise((resolve) => {
    const server = createServer()
    server.once('error', (error: NodeJS.ErrnoException) => resolve(error.code !== 'EADDRINUSE'))
    server.listen({ host, port }, () => server.close(() => resolve(true)))
  })
}

/** Before a first install, which would find it out at the end. `listen`: as `--listen` takes it. Throws BatonError refused. */
export async function refuseTaken(listen: string): Promise<void> {
  const { host, port } = parseListen(listen)
  if (await isFree(host, port)) return
  const free = formatListen({ host, port: await freeAfter(host, port) })
  throw new BatonError('refused', `another program is already listening on ${formatListen({ host, port })}`, {
    hint: `choose another address, such as \`--listen ${free}\`, or stop that program`,
  })
}

/** Whether the port of `listen`, which names one address, is open at every one. */
export async function isOpenBeyond(listen: string): Promise<boolean> {
  const { host, port } = parseListen(listen)
  return !isAny(host) && (await listensEverywhere(port))
}

async function freeAfter(host: string, port: number): Promise<number> {
  for (let next = port + 1; next <= Math.min(port + NEXT_PORTS, 65_535); next++)
    if (await isFree(host, next)) return next
  return 0
}
