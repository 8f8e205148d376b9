// What the Node peers run: the handler of the reference service on bare node:http, without the agent, and a WebSocket echo.
// One bundle, several roles: `node app.cjs <role> <port> <tag file> <state directory> [drain ms]`.
//
//   plain     no signal handler, as most services are            graceful  SIGTERM: stop accepting, drain, exit
//   reuseport the same, and the port is shared (SO_REUSEPORT)    pm2       SIGINT, and says `ready` to pm2
//   activated graceful, on the socket that systemd holds
//   cluster   a primary and two workers; SIGUSR2 replaces the workers one by one

import cluster from 'node:cluster'
import type { Worker } from 'node:cluster'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { createHandler } from '../../agent/service/handler.ts'
import { openStore } from '../../agent/service/store.ts'
import { addEcho } from './echo.ts'

const WORKERS = 2
const LISTEN_FDS_START = 3 // sd_listen_fds(3)
const [role = 'plain', port = '0', tagFile = '', stateDirectory = '.', drainMs = '2000'] = process.argv.slice(2)

if (role === 'cluster' && cluster.isPrimary) rollWorkers()
else serve()

function serve(): void {
  const build = { service: 'beacon', tag: readFileSync(tagFile, 'utf8').trim() }
  const store = openStore(join(stateDirectory, 'beacon.db'))
  const app = createHandler(store, build, (line) => process.stderr.write(`${line}\n`))
  const server = createServer((request, response) => app.handle(request, response))
  const echo = addEcho(server)
  const place = role === 'activated' ? { fd: LISTEN_FDS_START } : { port: Number(port), host: '127.0.0.1' }
  server.listen({ ...place, backlog: 4096, reusePort: role === 'reuseport' }, () => {
    if (role === 'pm2') process.send?.('ready')
  })

  const leave = (): void => {
    echo.drain()
    server.close(() => process.exit(0)) // idle connections are closed, responses in flight are finished
    setTimeout(() => process.exit(0), Number(drainMs)).unref()
  }
  if (['graceful', 'reuseport', 'activated'].includes(role)) process.on('SIGTERM', leave)
  if (role === 'pm2') process.on('SIGINT', leave)
  if (role === 'cluster') {
    process.on('message', (message) => {
      if (message === 'leave') leave()
    })
  }
}

function rollWorkers(): void {
  let rolling = false
  const fork = (): Promise<Worker> => {
    const worker = cluster.fork()
    return new Promise((resolve) => worker.once('listening', () => resolve(worker)))
  }
  const retire = (worker: Worker): Promise<void> => {
    const gone = new Promise<void>((resolve) => worker.once('exit', () => resolve()))
    worker.send('leave')
    const late = setTimeout(() => worker.process.kill('SIGKILL'), Number(drainMs) + 1000)
    return gone.finally(() => clearTimeout(late))
  }
  for (let i = 0; i < WORKERS; i++) void fork()
  process.on('SIGUSR2', () => {
    if (rolling) return
    rolling = true
    void (async () => {
      for (const old of Object.values(cluster.workers ?? {})) {
        await fork()
        if (old !== undefined) await retire(old)
      }
      rolling = false
      process.send?.('rolled')
    })()
  })
  process.on('SIGTERM', () => {
    for (const worker of Object.values(cluster.workers ?? {})) worker?.process.kill('SIGKILL')
    process.exit(0)
  })
  process.on('disconnect', () => process.kill(process.pid, 'SIGTERM'))
}
