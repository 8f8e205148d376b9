// A line of so many Mbit/s that is so many milliseconds long: what comes in at one end leaves the other when that line would have carried
// it. A process of its own, because the kernel of a container rarely has `netem`. TCP's slow start is not in it: both ends are near.
// `node line.cjs <port> <port of the server> <Mbit/s> <round trip, ms>`

import { connect, createServer, type Socket } from 'node:net'

/** so much waits in the line; more stays with the sender */
const MOST_BYTES = 256 * 1024

const [port = 0, serverPort = 0, megabits = 0, roundTripMs = 0] = process.argv.slice(2).map(Number)
const bytesPerMs = (megabits * 1e6) / 8 / 1000

/** Carries one direction of all connections. */
function makeDirection(): (from: Socket, to: Socket) => void {
  let freeAt = 0
  return (from, to) => {
    let waiting = 0
    const due: (() => void)[] = [] // two timers of one millisecond may fire in either order
    const after = (bytes: number, act: () => void): void => {
      const now = performance.now()
      freeAt = Math.max(now, freeAt) + bytes / bytesPerMs
      due.push(act)
      setTimeout(() => due.shift()?.(), freeAt + roundTripMs / 2 - now)
    }
    from.on('data', (chunk: Buffer) => {
      waiting += chunk.length
      if (waiting > MOST_BYTES) from.pause()
      after(chunk.length, () => {
        to.write(chunk)
        waiting -= chunk.length
        if (waiting <= MOST_BYTES) from.resume()
      })
    })
    from.on('end', () => after(0, () => to.end()))
    from.on('error', () => to.destroy())
  }
}

const [forth, back] = [makeDirection(), makeDirection()]
createServer({ allowHalfOpen: true }, (client) => {
  const server = connect({ port: serverPort, host: '127.0.0.1', allowHalfOpen: true })
  forth(client, server)
  back(server, client)
}).listen(port, '127.0.0.1')
