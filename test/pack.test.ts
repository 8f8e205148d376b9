// The package, judged from the packed file.

import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { PROJECT } from '../deploy/make/place.ts'
import { equal, is, ok } from './assert.ts'
import { checkPack } from './pack/main.ts'
import { suite } from './suite.ts'

const test = suite('pack', { timeoutMs: 300_000 })

test('loads everywhere, by import and by require, with the types that it has, and needs no other package', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'baton-pack-'))
  try {
    const { faults, imported, sizeBytes } = await checkPack(folder)
    equal(faults, [])
    ok(imported.length >= 24, imported.join('\n'))
    ok(sizeBytes < 4_000_000, `${sizeBytes} bytes`)
    const manifest = JSON.parse(await readFile(join(PROJECT, 'package.json'), 'utf8')) as Record<string, unknown>
    is(manifest['dependencies'], undefined)
    is(manifest['optionalDependencies'], undefined)
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
})

test.run()
