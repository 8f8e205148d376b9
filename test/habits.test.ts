// @deadlineMs 400000
// Applications as people write them, each with a habit of the field: it asks whether its port is free, uses UDP, has a server that is not HTTP.
// Each is updated and rolled back, gets a broken release, and is killed: always as good as a plain restart.

import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { connect } from 'node:net'
import { join } from 'node:path'
import { PROJECT } from '../deploy/make/place.ts'
import { is, ok } from './assert.ts'
import { type Adopted, adopted } from './fixtures/adopted.ts'
import { ask, freePort } from './fixtures/install.ts'
import { eventually } from './lab/systemd.ts'
import { suite } from './suite.ts'

const test = suite('habits', { timeoutMs: 120_000 })
const ADAPTER = join(PROJECT, 'agent/adapters/auto.ts')
const AUTO = `import '${ADAPTER}'\nimport { createServer } from 'node:http'\n`
const ANSWER = `createServer((request, response) => response.end(String(process.pid)))`
const LISTEN = `${ANSWER}.listen(Number(process.env.PORT), process.env.HOST)`
const BROKEN = `process.exit(3)\n`

interface Habit {
  text: string
  /** Throws if this part of the application does not serve. */
  serves?: (pid: number) => Promise<void>
  config?: object
  update?: object
}

const fields: Record<string, () => Promise<Habit>> = {
  'asks in four ways whether its port is free': async () => ({
    text: `import { QUESTIONS } from '${join(PROJECT, 'test/fixtures/port-questions.ts')}'
      for (const [name, free] of Object.entries(QUESTIONS)) {
        const port = await free(Number(process.env.PORT))
        if (port !== Number(process.env.PORT)) throw new Error(name + ' says ' + port)
      }
      ${LISTEN}`,
  }),
  'joins a group as mDNS does, and has two sockets on one port': async () => {
    const port = await freePort()
    return {
      text: `import { createSocket } from 'node:dgram'
        import { onStop } from '${ADAPTER}'
        const answer = (socket) => socket.on('message', (_, from) => socket.send(String(process.pid), from.port, from.address))
        const mdns = answer(createSocket({ type: 'udp4', reuseAddr: true }))
        mdns.on('listening', () => update())
        mdns.bind(${port}, '224.0.0.251')
        const update = () => mdns.addMembership('224.0.0.251', '127.0.0.1')
        onStop(() => mdns.dropMembership('224.0.0.251', '127.0.0.1'))
        for (let i = 0; i < 2; i++) answer(createSocket({ type: 'udp4', reusePort: true })).bind(${port}, '127.0.0.1')
        ${LISTEN}`,
      async serves(pid) {
        const asked = Array.from({ length: 16 }, () => eventually('an answer', () => answersBy(pid, port, '127.0.0.1')))
        await Promise.all(asked)
        await eventually('an answer to the group', () => answersBy(pid, port, '224.0.0.251'))
      },
    }
  },
  'has a server of a protocol of its own, with a client that stays': async () => {
    const port = await freePort()
    return {
      text: `import { createServer as createPlain } from 'node:net'
        createPlain((socket) => void socket.on('error', () => {}).write(String(process.pid))).listen(${port}, '127.0.0.1')
        ${LISTEN}`,
      update: { drainMs: 100_000 }, // longer than the test waits for an operation
      async serves(pid) {
        await eventually('a greeting', async () => {
          const client = connect(port, '127.0.0.1').on('error', () => {})
          client.unref() // it stays open
          const [said] = (await once(client, 'data')) as [Buffer]
          return Number(said.toString()) === pid
        })
      },
    }
  },
}

for (const [habit, make] of Object.entries(fields))
  for (const kind of ['one-at-a-time', 'together'] as const) {
    test(`${kind}: an application that ${habit}: update, rollback, a broken release, and a kill`, async () => {
      const { text, serves = async () => {}, config = {}, update = {} } = await make()
      await using it = await adopted(AUTO + text, { switch: kind, ...config }, { update })
      const well = async () => {
        const pid = await eventually('an answer', async () => await pidOf(it), 30_000)
        await serves(pid)
        return pid
      }
      const first = await well()
      const updated = await it.operate('/admin/update', { tag: 'v1.1.0' })
      is(updated.outcome, 'updated', JSON.stringify(updated.error))
      const second = await well()
      ok(second !== first)
      const back = await it.operate('/admin/update/rollback')
      is(back.outcome, 'rolled_back', JSON.stringify(back.error))
      const third = await well()
      await it.release('v1.2.0', `${AUTO}${BROKEN}${text.replaceAll(/^import .*$/gm, '')}`)
      is((await it.operate('/admin/update', { tag: 'v1.2.0' })).outcome, 'reverted')
      const fourth = await well()
      if (kind === 'together') is(fourth, third)
      process.kill(fourth, 'SIGKILL')
      await eventually('another process', async () => ((await pidOf(it)) ?? fourth) !== fourth, 30_000)
      await well()
    })
  }

test.run()

/** Whether the process answers a datagram. The kernel chooses among sockets that share a port by the client's. */
async function answersBy(pid: number, port: number, host: string): Promise<boolean> {
  const client = createSocket('udp4')
  try {
    client.bind(0, '127.0.0.1')
    await once(client, 'listening')
    client.setMulticastInterface('127.0.0.1')
    client.send('who', port, host)
    const [said] = (await once(client, 'message', { signal: AbortSignal.timeout(500) })) as [Buffer]
    return Number(said.toString()) === pid
  } finally {
    client.close()
  }
}

async function pidOf({ port }: Adopted): Promise<number | null> {
  const answer = await ask(port, 'GET', '/', null).catch(() => null)
  return answer?.status === 200 ? Number(answer.body) : null
}
