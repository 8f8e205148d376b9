// A release whose health path is another one than the old release's is asked at its own, there and back, in either order.

import { join } from 'node:path'
import { PROJECT } from '../deploy/make/place.ts'
import { equal, is, match } from './assert.ts'
import { adopted } from './fixtures/adopted.ts'
import { suite } from './suite.ts'

const test = suite('moved health', { timeoutMs: 120_000 })

/** An application that answers 200 at this path, and 404 elsewhere. */
const answersAt = (path: string) => `import '${join(PROJECT, 'agent/adapters/auto.ts')}'
  import { createServer } from 'node:http'
  createServer((request, response) => {
    response.writeHead(request.url === '${path}' ? 200 : 404).end()
  }).listen(Number(process.env.PORT), process.env.HOST)`

for (const order of ['start-first', 'stop-first'] as const) {
  const register = order === 'stop-first' ? test : test.long
  register(
    `${order}: a release whose health path has moved is asked at the new one, and its predecessor at the old one`,
    async () => {
      const moved = { order, healthPath: '/api/healthz' }
      await using it = await adopted(answersAt('/healthz'), { order }, { update: { readyTimeout: '4s' } }, true, moved)
      await it.release('v1.1.0', answersAt('/api/healthz'), moved)
      const { outcome, error } = await it.operate('/admin/update', { tag: 'v1.1.0' })
      equal([outcome, error], ['updated', null])
      is((await it.operate('/admin/update/rollback')).outcome, 'rolled_back')
      // what is wrong is still told by the path that the release names
      await it.release('v1.2.0', answersAt('/api/healthz'), { order, healthPath: '/elsewhere' })
      const bad = await it.operate('/admin/update', { tag: 'v1.2.0' })
      is(bad.outcome, 'reverted')
      match(bad.error?.message ?? '', /expected status 2xx from \/elsewhere, got 404/)
    },
  )
}

test.run()
