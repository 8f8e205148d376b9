// Which files of an author's folder go into a release.

import { mkdir, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { filesOf } from '../deploy/make/files.ts'
import { parseProject } from '../deploy/make/project.ts'
import { equal } from './assert.ts'
import { temporary } from './lab/temporary.ts'
import { suite } from './suite.ts'

const test = suite('files')

test('the database of the author’s own runs stays out, unless `include` names it; so do secrets', async () => {
  await using room = await temporary('files')
  const write = async (path: string) => {
    await mkdir(dirname(join(room.path, path)), { recursive: true })
    await writeFile(join(room.path, path), '')
  }
  const packed = ['data/seed.json', 'data/shop.db.sql', 'public/index.html', 'server.js']
  const left = ['data/shop.db', 'data/shop.db-wal', 'data/shop.db-shm', 'data/shop.db-journal', '.env', '.npmrc']
  for (const path of [...packed, ...left]) await write(path)
  const project = (more: object) =>
    parseProject({ service: 'shop', kind: 'app', entry: 'server.js', database: './data/shop.db', ...more }, room.path)
  const pathsOf = async (more: object = {}) => (await filesOf(project(more))).map(({ path }) => path).toSorted()
  equal(await pathsOf(), packed)
  equal(await pathsOf({ include: { '.': '.', 'first.db': 'data/shop.db' } }), [...packed, 'first.db'].toSorted())
})

test.run()
