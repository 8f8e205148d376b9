// What a signed feed costs a check beside one that is not: the same release, the same server, which answers after a round trip.

import { execFile } from 'node:child_process'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { bundle } from '../../deploy/make/bundle.ts'
import { PROJECT } from '../../deploy/make/place.ts'
import { makeSignedDist } from '../lab/signed-dist.ts'
import { CACHE } from './setup.ts'
import { median } from './statistics.ts'

export interface Check {
  requests: number
  connections: number
  /** median, of a process that has loaded nothing yet */
  firstMs: number
  /** median of its second check, where nothing has changed */
  againMs: number
}

export interface TrustResult {
  roundTripMs: number
  rounds: number
  unsigned: Check
  signed: Check
  /** for docs/about/performance.md */
  markdown: string
}

const ROUND_TRIP_MS = 20
const ROUNDS = 11

export async function run({ say }: { say: (line: string) => void }): Promise<TrustResult> {
  await using it = await makeSignedDist(['v1.0.0', 'v1.1.0'])
  const path = join(CACHE, 'signed-check.cjs')
  await mkdir(CACHE, { recursive: true })
  await writeFile(path, await bundle({ entry: join(PROJECT, 'test/fixtures/signed-check.ts'), define: {} }))
  await using server = await slowServer(it.dist.dir)
  const measure = async (what: string, root: string): Promise<Check> => {
    say(`trust: ${ROUNDS} checks of a feed that is ${what}`)
    const first: number[] = []
    const again: number[] = []
    for (let i = 0; i < ROUNDS; i++) {
      server.reset()
      const { stdout } = await promisify(execFile)(process.execPath, [path, server.url, root])
      const [, one, two] = /^v1\.1\.0 in (\d+) ms, again v1\.1\.0 in (\d+) ms$/m.exec(stdout) ?? []
      if (one === undefined || two === undefined) throw new Error(`the check ended with: ${stdout}`)
      first.push(Number(one))
      again.push(Number(two))
    }
    return {
      requests: server.requests(),
      connections: server.connections(),
      firstMs: median(first),
      againMs: median(again),
    }
  }
  const unsigned = await measure('not signed', '-')
  const signed = await measure('signed', join(it.folder, '1.root.json'))
  const result = { roundTripMs: ROUND_TRIP_MS, rounds: ROUNDS, unsigned, signed }
  return { ...result, markdown: markdownOf(result) }
}

async function slowServer(folder: string) {
  let requests = 0
  let connections = 0
  const server = createServer(async (request, response) => {
    requests++
    const bytes = await readFile(join(folder, request.url ?? '')).catch(() => null)
    await sleep(ROUND_TRIP_MS)
    response.writeHead(bytes === null ? 404 : 200).end(bytes ?? '')
  }).on('connection', () => connections++)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    requests: () => requests,
    connections: () => connections,
    reset: () => void (requests = connections = 0),
    [Symbol.asyncDispose]: () => new Promise<void>((resolve) => void server.close(() => resolve())),
  }
}

function markdownOf({ roundTripMs, rounds, unsigned, signed }: Omit<TrustResult, 'markdown'>): string {
  return `A check for the latest release takes ${unsigned.firstMs} ms of a feed that is not signed, and ${signed.firstMs} ms of a signed one; the next one of the same process, with nothing new, ${unsigned.againMs} and ${signed.againMs} ms. Medians of ${rounds} processes; the server answers after ${roundTripMs} ms.`
}
