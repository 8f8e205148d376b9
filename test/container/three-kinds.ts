// An application that listens in three ways (test/fixtures/three-kinds.ts) as an image of two releases, and clients of each way that
// never try again.

import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { copyFile, mkdtemp, writeFile } from 'node:fs/promises'
import { get } from 'node:http'
import { connect } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { loadEsbuild } from '../../deploy/make/bundle.ts'
import { PROJECT } from '../../deploy/make/place.ts'
import { labFolder, type LabEngine, publishBase, type Registry } from '../lab/docker.ts'
import { derivedImage } from './images.ts'

/** the kernel keeps some 270 datagrams for an application that is away */
const ASK_EVERY_MS = 50

/** where clients reach each way */
export interface ThreePorts {
  address: string
  http: number
  lines: number
  datagrams: number
}

/** The images `v1.0.0` and `v1.1.0`; returns their repository. */
export async function threeKinds(engine: LabEngine, { host }: Registry): Promise<string> {
  const repository = `${host}/three`
  const folder = await mkdtemp(join(labFolder(), 'three-'))
  const { build } = await loadEsbuild(PROJECT)
  await build({
    absWorkingDir: PROJECT,
    entryPoints: ['test/fixtures/three-kinds.ts'],
    outfile: join(folder, 'app.mjs'),
    bundle: true,
    platform: 'node',
    format: 'esm',
    logLevel: 'silent',
  })
  await copyFile(process.execPath, join(folder, 'node'))
  const says = 'LABEL org.opencontainers.image.version=v1.0.0 baton.service=three'
  const starts = 'ENTRYPOINT ["/node", "--disable-warning=ExperimentalWarning", "/app.mjs"]'
  const lines = ['COPY node app.mjs /', 'EXPOSE 8080 9000 5353/udp', says, starts]
  await writeFile(join(folder, 'Dockerfile'), [`FROM ${await publishBase(host)}`, ...lines, ''].join('\n'))
  const from = `${repository}:v1.0.0`
  await engine.docker('build', '-q', '-t', from, folder)
  await engine.docker('push', '-q', from)
  const reference = `${repository}:v1.1.0`
  await derivedImage(engine, { from, reference, lines: 'LABEL org.opencontainers.image.version=v1.1.0' })
  return repository
}

/** One request of each way; rejects if one is not answered as it was asked. */
export async function askThree({ address, http, lines, datagrams }: ThreePorts): Promise<void> {
  await Promise.all([askHttp(address, http, 'one'), askLine(address, lines, 'one')])
  const client = await datagramsTo(address, datagrams)
  await client.send('one')
  for (let waited = 0; client.missing().length > 0; waited += 20) {
    if (waited > 5000) throw new Error('the datagram was not answered')
    await sleep(20)
  }
  client.close()
}

/** What went wrong while `act` ran, of a request of each way every ASK_EVERY_MS; a datagram has two seconds more. */
export async function whileAsked(
  { address, http, lines, datagrams }: ThreePorts,
  act: () => Promise<unknown>,
): Promise<{ wrong: string[]; right: number }> {
  const wrong: string[] = []
  let [right, isOver, n] = [0, false, 0]
  const under: Promise<unknown>[] = []
  const client = await datagramsTo(address, datagrams)
  const asking = (async () => {
    for (; !isOver; await sleep(ASK_EVERY_MS)) {
      const text = `n${n++}`
      for (const [what, asked] of [
        ['HTTP', askHttp(address, http, text)],
        ['line', askLine(address, lines, text)],
        ['datagram', client.send(text)],
      ] as const)
        under.push(
          asked.then(
            () => right++,
            (cause: Error) => wrong.push(`${what} ${text}: ${cause.message}`),
          ),
        )
    }
  })()
  await sleep(300)
  await act()
  await sleep(300)
  isOver = true
  await asking
  await Promise.all(under)
  for (let waited = 0; client.missing().length > 0 && waited < 2000; waited += 20) await sleep(20)
  wrong.push(...client.missing().map((text) => `datagram ${text}: no answer`))
  client.close()
  return { wrong, right }
}

function askHttp(host: string, port: number, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const request = get({ host, port, path: `/${text}`, agent: false, timeout: 20_000 }, (response) => {
      let said = ''
      response.setEncoding('utf8').on('data', (chunk: string) => void (said += chunk))
      response.on('end', () => (said === `/${text}` ? resolve() : reject(new Error(`got ${said.slice(0, 80)}`))))
      response.on('error', reject)
    })
    request.on('timeout', () => request.destroy(new Error('no answer after 20 s')))
    request.on('error', reject)
  })
}

function askLine(host: string, port: number, text: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port }, () => void socket.write(`${text}\n`))
    socket.setTimeout(20_000, () => socket.destroy(new Error('no answer after 20 s')))
    let said = ''
    socket.setEncoding('utf8').on('data', (chunk: string) => {
      said += chunk
      if (said === `${text}\n`) socket.end()
    })
    socket.on('error', reject)
    socket.on('close', () =>
      said === `${text}\n` ? resolve() : reject(new Error(`closed after ${said.slice(0, 80)}`)),
    )
  })
}

async function datagramsTo(host: string, port: number) {
  const socket = createSocket('udp4')
  const open = new Set<string>()
  socket.on('message', (text) => void open.delete(text.toString()))
  socket.on('error', () => {}) // refused: its answer is missing then
  socket.connect(port, host)
  await once(socket, 'connect')
  return {
    async send(text: string): Promise<void> {
      open.add(text)
      await new Promise<void>((resolve) => socket.send(text, () => resolve()))
    },
    missing: () => [...open],
    close: () => socket.close(),
  }
}
