// What an install that cannot update itself tells of the newest release: heard behind the answers, from a real feed.

import { readSettings } from '../../agent/settings.ts'
import { latestOf } from '../../agent/update/unmanaged.ts'
import { unmanagedUpdater } from '../../agent/updater.ts'
import { is, ok, rejects, withCode } from '../assert.ts'
import { makeDist } from '../lab/dist.ts'
import { releaseServer } from '../lab/release-server.ts'
import { suite } from '../suite.ts'

const test = suite('latest')

function settingsWith(feed: string | null) {
  return readSettings({ service: 'beacon', tag: 'v1.0.0', password: null, feed, stateDirectory: '/nowhere' })
}

async function becomes(latest: () => string | null, wanted: string): Promise<void> {
  for (const deadline = Date.now() + 20_000; latest() !== wanted;) {
    if (Date.now() > deadline) throw new Error(`expected ${wanted}, got ${latest()}`)
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
}

test('the 501 tells the newest release once the feed has said it, and asks the feed once however often it is asked', async () => {
  await using dist = await makeDist(['v1.0.0', 'v1.1.0'])
  const server = await releaseServer({ dir: dist.dir })
  try {
    const latest = latestOf(settingsWith(server.staticUrl))
    is(latest(), null, 'no answer waits for the feed')
    await becomes(latest, 'v1.1.0')
    const asked = server.requests.length
    ok(asked > 0)
    const management = {
      managed: false,
      why: 'container',
      reason: 'a container',
      route: 'pull',
      command: null,
    } as const
    const updater = unmanagedUpdater(management, 'v1.0.0', latest)
    for (let times = 0; times < 50; times++) {
      const error = await rejects(updater.status(null), withCode('not_managed'))
      is((error as { members?: Record<string, unknown> }).members?.['latest'], 'v1.1.0')
    }
    is(server.requests.length, asked)
  } finally {
    await server.close()
  }
})

test('the latest is that of a check: a release that takes hosts from a newer one only is not it, nor does one that cannot be used hide it', async () => {
  await using dist = await makeDist(['v1.0.0', 'v1.1.0'])
  await dist.add('v1.2.0', { os: 'plan9' })
  await dist.add('v2.0.0', { about: { from: '>=1.1.0' } })
  await becomes(latestOf(settingsWith(dist.dir)), 'v1.1.0')
})

test('without a feed, and with one that is down, there is none to tell', async () => {
  const [none, down] = [latestOf(settingsWith(null)), latestOf(settingsWith('http://127.0.0.1:9/'))]
  for (const latest of [none, down]) is(latest(), null)
  await new Promise((resolve) => setTimeout(resolve, 200))
  for (const latest of [none, down]) is(latest(), null)
})

test.run()
