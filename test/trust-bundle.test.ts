// The library of trust in an executable: a text inside the script, compiled when a feed is first asked, and as good as from source.

import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { bundle } from '../deploy/make/bundle.ts'
import { makeSigner } from '../deploy/trust/keys.ts'
import * as assert from './assert.ts'
import { makeSignedDist } from './lab/signed-dist.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('trust, in a bundle')

test('a bundled script finds the signed latest, and refuses what nobody has signed', async () => {
  await using it = await makeSignedDist(['v1.0.0', 'v1.1.0'])
  await using made = await temporary('bundle')
  const folder = made.path
  const path = join(folder, 'check.cjs')
  await writeFile(path, await bundle({ entry: join(import.meta.dirname, 'fixtures', 'signed-check.ts'), define: {} }))
  const root = join(it.folder, '1.root.json')
  const ask = async (): Promise<string> =>
    (await promisify(execFile)(process.execPath, [path, it.dist.dir, root], { cwd: '/' })).stdout
  assert.match(await ask(), /^v1\.1\.0 in \d+ ms, again v1\.1\.0 in \d+ ms\n$/)
  await it.publish({ signers: { timestamp: [makeSigner()] } })
  assert.match(await ask(), /^BatonError: timestamp\.json is not signed by any of the keys/)
})

test('asking for the trust of a feed, or opening one, compiles none of it', async () => {
  const program = `
    const { createRequire } = await import('node:module')
    const loaded = () => Object.keys(createRequire(${JSON.stringify(import.meta.url)}).cache).some((path) => path.includes('/tuf-js/'))
    const { openFeed } = await import(${JSON.stringify(new URL('../agent/update/feed/open.ts', import.meta.url).href)})
    const trust = { root: '{"signed":{"version":1,"expires":"2099-01-01T00:00:00Z"}}', builtAt: null }
    const feed = openFeed('/nowhere', { service: 'beacon', stateDirectory: null, trust })
    await feed.trust()
    const before = loaded()
    await feed.latest(() => false).catch(() => {})
    console.log(before, loaded())`
  const args = ['--input-type=module', '--eval', program]
  const { stdout } = await promisify(execFile)(process.execPath, args)
  assert.is(stdout, 'false true\n')
})

test.run()
