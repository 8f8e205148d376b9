// A hundred hostile feeds, signed and not, one after the other in one process: each ends with a code, none with a crash, a file or
// more than 100 MB of memory.

import { readdir } from 'node:fs/promises'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { BatonError } from '../agent/words/errors.ts'
import * as assert from './assert.ts'
import { labFeed } from './lab/feed.ts'
import { makeSignedDist, stateFolder } from './lab/signed-dist.ts'
import { suite } from './suite.ts'

const test = suite('hostile feeds')

const FEEDS = 100
const MEMORY_MAX_BYTES = 100 * 1024 * 1024

/** What a feed may answer to anything; `seed` makes no two alike. */
const ANSWERS: ((response: ServerResponse, seed: number) => void)[] = [
  (response) => void response.end('['.repeat(4_000_000)),
  (response) => void response.end(`{"a":${'{"a":'.repeat(100_000)}`),
  (response, seed) => forever(response, Buffer.alloc(64 * 1024, seed)),
  (response) => forever(response.writeHead(200, { 'content-length': 2 ** 40 }), Buffer.alloc(64 * 1024)),
  (response) => void response.writeHead(302, { location: 'http://169.254.169.254/latest/meta-data/' }).end(),
  (response) => void response.writeHead(302, { location: 'file:///etc/shadow' }).end(),
  (response) => void response.writeHead(302, { location: '/again' }).end(),
  (response) => void response.writeHead(200, { 'x-long': 'y'.repeat(64 * 1024) }).end('{}'),
  (response, seed) => void response.writeHead(200 + (seed % 7) * 57).end('no'),
  (response) => void response.socket?.destroy(),
  (response) => void response.socket?.end('HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n{}'),
  (response) => void response.socket?.end('not HTTP at all\n\n\n'),
  (response, seed) => void response.end(Buffer.from(Array.from({ length: 5_000 }, (_, at) => (at * seed) % 256))),
  (response) =>
    void response.end(JSON.stringify({ format: 1, releases: [{ tag: '../../etc' }, { tag: 'v999999999.0.0' }] })),
  (response) => void response.end(JSON.stringify({ format: 1, releases: many() })),
  (response) => void response.end('{"signatures":[],"signed":{"__proto__":{"version":1}}}'),
  (response) => void response.writeHead(200, { 'content-encoding': 'gzip' }).end('{}'),
  (response) => void response.write('{'), // and then nothing
]

test(`${FEEDS} hostile feeds: a code for each, and nothing else`, async () => {
  await using signed = await makeSignedDist(['v1.0.0'])
  await using state = await stateFolder()
  let answer = ANSWERS[0]
  let seed = 1
  const server = createServer((_request, response) => {
    response.on('error', () => {})
    answer?.(response, seed)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  const before = process.memoryUsage.rss()
  let most = 0
  const timer = setInterval(() => (most = Math.max(most, process.memoryUsage.rss() - before)), 5)
  const codes = new Set<string>()
  try {
    for (let turn = 0; turn < FEEDS; turn++) {
      answer = ANSWERS[turn % ANSWERS.length]
      seed = turn + 1
      const trust = turn % 2 === 0 ? signed.anchor : null
      const setting = turn % 3 === 0 ? `github:acme/beacon@${base}/api/v3` : `${base}/feed/`
      await using feed = labFeed(setting, { trust, stateDirectory: state.path, timeoutMs: 400, patienceMs: 1 })
      const found = await feed
        .latest(() => false)
        .catch((error: unknown) => {
          assert.instance(error, BatonError)
          codes.add((error as BatonError).code)
          return null
        })
      assert.is(found?.release ?? null, null)
    }
  } finally {
    clearInterval(timer)
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  }
  assert.ok(most < MEMORY_MAX_BYTES, `${Math.round(most / 1024 ** 2)} MB`)
  assert.ok(codes.has('check_failed') && codes.has('metadata_invalid'), [...codes].join(', '))
  assert.equal(await readdir(state.path), []) // a feed that proves nothing leaves nothing
})

test.run()

function forever(response: ServerResponse, chunk: Buffer): void {
  const write = (): void => {
    while (!response.destroyed && response.write(chunk));
    if (!response.destroyed) response.once('drain', write)
  }
  write()
}

function many(): { tag: string }[] {
  return Array.from({ length: 20_000 }, (_, at) => ({ tag: `v1.0.${at}` }))
}
