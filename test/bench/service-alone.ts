// What the bench runs as Baton, one at a time: the same service behind the first code of a release. A holder never loads the service,
// and a successor loads it when its gate is open, so what clients wait for is what they would wait for.

import { readFileSync } from 'node:fs'
import {
  isHolder,
  keepLastWords,
  noteRelease,
  noteStart,
  readConfiguration,
  waitAtGate,
  doAsOrdered,
} from '../../agent/first.ts'
import { BUILD } from '../../agent/service/build.ts'

const { service, tag } = BUILD
const argv = process.argv.slice(2)
if (argv[0] === '--version') void sayVersion()
else void begin()

async function begin(): Promise<void> {
  const database = `${service}.db`
  const release = { service, tag, commit: null, kind: 'bundle', healthPath: '/healthz', database, servers: 1 } as const
  noteRelease({ ...release, trust: null, switch: 'one-at-a-time', commands: null, basePath: '' })
  const { configuration } = readConfiguration(readFileSync(argv[1] ?? '', 'utf8'))
  noteStart({ argv, executable: process.execPath, isChild: false, directory: process.cwd(), configuration })
  if (isHolder()) {
    const { hold } = await import('../../agent/handover/hold/holder.ts')
    process.exit(await hold())
  }
  keepLastWords()
  waitAtGate({ tag, switch: 'one-at-a-time' })
  const { serve } = await import('./serve.ts')
  await serve(argv, 'one-at-a-time')
}

async function sayVersion(): Promise<void> {
  process.stdout.write(`${service} ${tag}\n`)
  await doAsOrdered()
}
