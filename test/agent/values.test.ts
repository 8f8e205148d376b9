// What an author's process leaves in memory: the file in which it travels.

import { fork } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, fstatSync, ftruncateSync, openSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openUnnamed } from '../../agent/disk/disk.ts'
import { readValues, writeValues } from '../../agent/handover/values-file.ts'
import { makeValues } from '../../agent/handover/values.ts'
import { INHERITANCE } from '../../agent/words/wire.ts'
import { equal, is, match, ok } from '../assert.ts'
import { suite } from '../suite.ts'
import { temporary } from '../lab/temporary.ts'

const test = suite('values')
const MEBIBYTE = 1024 * 1024

/** What the next process reads of `given`, and what was said. `cut`: the writer was killed before the last bytes. */
function travel(given: Record<string, unknown>, cut = 0): { read: Map<string, unknown>; said: string[] } {
  const fd = openUnnamed(tmpdir())
  ok(fd !== null)
  const said: string[] = []
  const values = Object.entries(given).map(([key, value]): [string, () => unknown] => [key, () => value])
  writeValues(fd, new Map(values), (message) => said.push(message))
  ftruncateSync(fd, Math.max(0, fstatSync(fd).size - cut))
  return { read: readValues(fd), said }
}

test('go there whole, of every kind that can be cloned; what cannot, and what is too much, is named and stops no other', () => {
  const given = { map: new Map([['ö', new Date(1)]]), bytes: Buffer.alloc(3 * MEBIBYTE, 7), nothing: undefined }
  const { read, said } = travel({ ...given, function: () => {}, much: Buffer.alloc(64 * MEBIBYTE), last: 1 })
  equal(read.get('map'), given.map)
  is(Buffer.compare(Buffer.from(read.get('bytes') as Uint8Array), given.bytes), 0)
  ok(read.has('nothing'))
  equal([...read.keys()], ['map', 'bytes', 'nothing', 'last'])
  is(said.length, 2)
  match(said[0] ?? '', /the value `function` cannot be handed over: .*could not be cloned/)
  match(said[1] ?? '', /the value `much` cannot be handed over: expected at most 67108864 bytes for all values/)
})

test('are none at all if their writer was killed before it had written all of them', () => {
  for (const cut of [1, 5, 1e9]) is(travel({ one: 'a text', two: [1, 2, 3] }, cut).read.size, 0, `${cut}`)
})

test('a process without a predecessor inherits nothing, at once', async () => {
  is(await makeValues(null).inherited('sessions'), undefined)
})

test("are the main thread's: a worker of a successor, which starts before its listen(), inherits nothing, at once", async () => {
  await using made = await temporary('values')
  const folder = made.path
  const file = openSync(join(folder, 'values'), 'w+')
  try {
    const entry = join(folder, 'app.js')
    await writeFile(join(folder, 'package.json'), '{ "type": "module" }')
    await writeFile(
      entry,
      `import { Worker, isMainThread, parentPort } from 'node:worker_threads'
       if (isMainThread) new Worker(new URL(import.meta.url)).once('message', (said) => process.send(said, () => process.exit()))
       else {
         const { inherited } = await import(${JSON.stringify(import.meta.resolve('../../agent/adapters/auto.ts'))})
         parentPort.postMessage([await inherited('sessions')])
       }\n`,
    )
    const inheritance = { listeners: [], predecessor: { pid: process.pid, startTime: null }, values: 4 }
    const child = fork(entry, [], {
      execArgv: [...process.execArgv],
      env: { ...process.env, [INHERITANCE]: JSON.stringify(inheritance) },
      stdio: ['ignore', 'inherit', 'inherit', 'ipc', file],
      serialization: 'advanced',
      timeout: 20_000,
    })
    const [said] = (await Promise.race([once(child, 'message'), once(child, 'exit')])) as [unknown]
    equal(said, [undefined])
  } finally {
    closeSync(file)
  }
})

test.run()
