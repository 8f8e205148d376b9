// A handover that is wrong on purpose, the way it is usually written: the new process opens a SO_REUSEPORT socket of its own,
// and the old one calls `http.Server.close()`. The kernel resets what is queued on the socket that closes.
// SIGUSR2 switches. Rows are kept in memory and handed on with the switch, so that only connections can be lost.

import { spawn } from 'node:child_process'
import { createServer } from 'node:http'

const port = Number(process.argv[2])
const rows: string[] = []

const server = createServer((request, response) => {
  if (request.url === '/rows') return void response.end(JSON.stringify(rows))
  if (request.method !== 'POST') return void response.end('ok')
  let text = ''
  request.setEncoding('utf8').on('data', (part: string) => (text += part))
  request.on('end', () => {
    rows.push((JSON.parse(text) as { message: string }).message)
    response.writeHead(201).end()
  })
})

process.once('message', (inherited: string[]) => {
  rows.unshift(...inherited)
  process.disconnect?.()
})
server.listen({ port, host: '0.0.0.0', reusePort: true, backlog: 4096 }, () => process.send?.('ready'))

process.on('SIGUSR2', () => {
  const successor = spawn(process.execPath, process.argv.slice(1), {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    detached: true,
  })
  successor.once('message', () => {
    server.close(() => {
      successor.send(rows)
      successor.once('disconnect', () => process.exit(0))
    })
  })
})
