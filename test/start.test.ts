// @long
// docs/start.md, as somebody would follow it: every command of the page, read from the page, in one shell, with the packed package and
// nothing else of this repository. In CI test/apps.test.ts takes another application through the same steps.

import { cp, mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../deploy/make/place.ts'
import { run } from '../deploy/lib/shell.ts'
import { is, match, not } from './assert.ts'
import { freePort } from './fixtures/install.ts'
import { commandsOf } from './lab/page.ts'
import { temporary } from './lab/temporary.ts'
import { packedKit } from './pack/main.ts'
import { suite } from './suite.ts'

const test = suite('start', { timeoutMs: 900_000 })

test.long('the first page: from an empty folder to an update under load that loses nothing, and back', async () => {
  await using made = await temporary('start')
  const blocks = await commandsOf('docs/start.md')
  const port = await freePort()
  await cp(await packedKit(), join(made.path, 'baton-kit-0.1.0.tgz'))
  await mkdir(join(made.path, 'home'))
  await writeFile(join(made.path, 'start.sh'), blocks.join('\n').replaceAll('8080', String(port)))
  const { exitCode, stdout, stderr } = await run(['bash', '-eu', 'start.sh'], {
    cwd: made.path,
    env: {
      HOME: join(made.path, 'home'),
      BATON_CACHE: join(PROJECT, '.cache', 'adopters'),
      npm_config_cache: join(PROJECT, '.cache', 'npm'),
      npm_config_prefer_offline: 'true',
      XDG_CONFIG_HOME: undefined,
      XDG_STATE_HOME: undefined,
      XDG_CACHE_HOME: undefined,
      PORT: undefined,
      HOST: undefined,
    },
    allowFailure: true,
  })
  is(exitCode, 0, `${stdout.slice(-2000)}\n${stderr.slice(-3000)}`)
  match(stdout, /^ +\d+ one\n +\d+ two\n/m) // both releases have answered the loop, and nobody else
  match(stdout + stderr, 'shop v1.1.0 is running and healthy, replacing v1.0.0')
  match(stdout + stderr, 'shop v1.0.0 is running and healthy, replacing v1.1.0')
  not(stderr.includes('curl: ('), stderr.slice(-3000))
})

test.run()
