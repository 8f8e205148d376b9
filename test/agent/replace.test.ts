// A file that several processes of one service replace at once, while one of them clears up after a kill. Real processes.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, mkdtemp, readdir, rm, utimes, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { makeDisk } from '../../agent/disk/disk.ts'
import { isLeftover, temporaryName } from '../../agent/disk/places.ts'
import type { ManagedInstall } from '../../agent/disk/managed-install.ts'
import { placesOf } from '../../agent/disk/places.ts'
import { clearTemporaries } from '../../agent/update/ending.ts'
import { equal, is, ok } from '../assert.ts'
import { isLong, suite } from '../suite.ts'

const test = suite('replace', { timeoutMs: 60_000 })
const ROUNDS = isLong ? 5000 : 400
const AGENT = join(import.meta.dirname, '../../agent')

test('two processes that replace one file at once, each of which clears up after others: no write fails, none is half', async () => {
  await using world = await makeWorld()
  const loop = (name: string) => `for (let i = 0; i < ${ROUNDS}; i++) {
    await disk.writeNote(file, JSON.stringify({ by: '${name}', i, rest: 'x'.repeat(2000) }), 0o600)
    await clearTemporaries(install)
    JSON.parse(await readFile(file, 'utf8'))
  }`
  const ended = ['one', 'other'].map(async (name) => await once(world.process(loop(name)), 'exit'))
  equal(await Promise.all(ended), [
    [0, null],
    [0, null],
  ])
  equal(await readdir(world.folder), ['schedule.json'])
})

test('what a killed process was about to put in place is cleared away by the next one, and not before it has died', async () => {
  await using world = await makeWorld()
  const child = world.process(`await disk.replace(file, async (temporary) => {
    await (await disk.create(temporary, 0o600)).close()
    console.log('there')
    await new Promise((resolve) => setTimeout(resolve, 60_000))
  })`)
  await once(child.stdout, 'data')
  await clearTemporaries(world.install)
  is((await readdir(world.folder)).length, 1)
  child.kill('SIGKILL')
  await once(child, 'exit')
  const [name = ''] = await readdir(world.folder)
  ok(isLeftover(name), name)
  await clearTemporaries(world.install)
  equal(await readdir(world.folder), [])
})

test('what a killed process has left under the pid of one that lives now is cleared away: in a container each has the pid 1', async () => {
  await using world = await makeWorld()
  const mine = temporaryName(join(world.folder, 'schedule.json'))
  await writeFile(mine, '{')
  await clearTemporaries(world.install)
  is((await readdir(world.folder)).length, 1)
  const before = Date.now() / 1000 - process.uptime() - 60
  await utimes(mine, before, before)
  await clearTemporaries(world.install)
  equal(await readdir(world.folder), [])
})

test('the temporary names of earlier releases are known as leftovers', () => {
  for (const name of ['.journal.json.0a1b2c3d4e5f.tmp', `.state.json.${'0'.repeat(12)}.tmp`]) ok(isLeftover(name), name)
  for (const name of ['journal.json', '.journal.json.tmp', 'journal.json.0a1b2c3d4e5f.tmp']) ok(!isLeftover(name), name)
})

test.run()

async function makeWorld() {
  const home = await mkdtemp(join(tmpdir(), 'baton-replace-'))
  const folder = join(home, 'update')
  const file = join(folder, 'schedule.json')
  await mkdir(folder)
  const install = { disk: makeDisk(), stateDirectory: home, places: placesOf(join(home, 'opt/svc')) } as ManagedInstall
  const head = `import { readFile } from 'node:fs/promises'
    import { makeDisk } from ${JSON.stringify(join(AGENT, 'disk/disk.ts'))}
    import { placesOf } from ${JSON.stringify(join(AGENT, 'disk/places.ts'))}
    import { clearTemporaries } from ${JSON.stringify(join(AGENT, 'update/ending.ts'))}
    const [disk, file] = [makeDisk(), ${JSON.stringify(file)}]
    const install = { disk, stateDirectory: ${JSON.stringify(home)}, places: placesOf(${JSON.stringify(join(home, 'opt/svc'))}) }\n`
  return {
    folder,
    install,
    process: (body: string) =>
      spawn(process.execPath, ['--input-type=module', '-e', head + body], { stdio: ['ignore', 'pipe', 'inherit'] }),
    async [Symbol.asyncDispose]() {
      await rm(home, { recursive: true, force: true })
    },
  }
}
