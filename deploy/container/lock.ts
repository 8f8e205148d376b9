// Allows one deployment of a container at a time. The lock is a listening unix socket, which the kernel frees with its process.
// Must hold: the process that has the lock says who it is to each process that it keeps out.

import { createHash } from 'node:crypto'
import { connect, createServer } from 'node:net'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { BatonError } from '../../agent/words.ts'
import { temporaryPlace } from '../lib/trusted.ts'

/** Held until disposed of. Throws BatonError locked. */
export async function lockContainer(socketPath: string, name: string): Promise<AsyncDisposable> {
  const path = await lockPath(socketPath, name)
  const server = createServer((socket) => {
    socket.on('error', () => {})
    socket.end(`pid ${process.pid} since ${startedAt}`)
  })
  const startedAt = new Date().toISOString()
  server.unref()
  for (let attempt = 0; ; attempt++) {
    if (await listens(server, path))
      return { [Symbol.asyncDispose]: () => new Promise<void>((resolve) => server.close(() => resolve())) }
    const holder = await ask(path)
    if (holder !== null || attempt > 3) {
      throw new BatonError('locked', `another deployment of \`${name}\` is under way: ${holder ?? 'nobody answers'}`)
    }
    if (!path.startsWith('\0')) await rm(path, { force: true }) // a dead process left this file behind
  }
}

/** On Linux an abstract name: no file, nothing to clean up. */
async function lockPath(socketPath: string, name: string): Promise<string> {
  const hash = createHash('sha256').update(`${socketPath}\0${name}`).digest('hex').slice(0, 32)
  if (process.platform === 'linux') return `\0baton-container-${hash}`
  return join(await temporaryPlace(), `baton-container-${hash}.sock`)
}

function listens(server: ReturnType<typeof createServer>, path: string): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const failed = (error: NodeJS.ErrnoException): void =>
      error.code === 'EADDRINUSE' ? resolve(false) : reject(error)
    server.once('error', failed)
    server.listen(path, () => {
      server.off('error', failed)
      resolve(true)
    })
  })
}

/** What the process that has the lock says; null if no process listens any more. */
function ask(path: string): Promise<string | null> {
  return new Promise((resolve) => {
    let said = ''
    const socket = connect(path)
    socket.setTimeout(2000, () => socket.destroy())
    socket.on('data', (chunk: Buffer) => void (said += chunk.toString()))
    socket.on('error', () => resolve(null))
    socket.on('close', () => resolve(said === '' ? 'it does not say who it is' : said))
  })
}
