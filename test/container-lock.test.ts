// The lock of a container's deployment: who can hold it, who is told what, and what a kill leaves of it.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmod, chown, mkdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { BatonError } from '../agent/words.ts'
import { lockContainer, lockPlace } from '../deploy/container/lock.ts'
import { equal, match, ok, rejects, withCode } from './assert.ts'
import { temporary } from './lab/temporary.ts'
import { suite } from './suite.ts'

const test = suite('container, lock')

test('the lock lies where only the user of the command writes', () => {
  equal(lockPlace(0, { XDG_RUNTIME_DIR: '/run/user/1000' }), '/var/run/baton')
  equal(lockPlace(1000, { XDG_RUNTIME_DIR: '/run/user/1000' }), '/run/user/1000/baton')
  match(lockPlace(1000, {}), /\/\.cache\/baton$/)
})

test('who is kept out is told the pid; each container and each engine has a lock of its own; a killed owner leaves none', async () => {
  await using made = await temporary('container-lock')
  const place = join(made.path, 'baton')
  const program = `
    const { lockContainer } = await import(${JSON.stringify(join(import.meta.dirname, '../deploy/container/lock.ts'))})
    await lockContainer('/engine.sock', 'app', ${JSON.stringify(place)})
    process.stdout.write('held')
    setInterval(() => {}, 1000)`
  const owner = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  try {
    await once(owner.stdout, 'data')
    equal((await stat(place)).mode & 0o777, 0o755)
    const error = await rejects(lockContainer('/engine.sock', 'app', place), withCode('locked'))
    match(String((error as BatonError).hint), /^wait for it to finish/) // this command has no `--lock-timeout`, which the code's own hint names
    match(error.message, new RegExp(`^another deployment of \`app\` is in progress \\(pid ${owner.pid}, since 20`))
    await (await lockContainer('/engine.sock', 'other', place))[Symbol.asyncDispose]()
    await (await lockContainer('/other.sock', 'app', place))[Symbol.asyncDispose]()
  } finally {
    owner.kill('SIGKILL')
    await once(owner, 'close')
  }
  {
    await using _ = await lockContainer('/engine.sock', 'app', place)
    const error = await rejects(lockContainer('/engine.sock', 'app', place), withCode('locked'))
    ok(error.message.includes(`pid ${process.pid}, `))
  }
  await (await lockContainer('/engine.sock', 'app', place))[Symbol.asyncDispose]()
})

test('a folder in which somebody else can write is refused', async () => {
  await using made = await temporary('container-lock')
  const open = join(made.path, 'open')
  await mkdir(open)
  await chmod(open, 0o777)
  await rejects(lockContainer('/engine.sock', 'app', open), withCode('refused'))
  if (process.geteuid?.() !== 0) return
  const others = join(made.path, 'others')
  await mkdir(others)
  await chown(others, 65534, 65534)
  await rejects(lockContainer('/engine.sock', 'app', others), withCode('refused'))
})

test.run()
