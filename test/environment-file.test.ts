// The `.env` of a compose project, which root writes in a folder that may be another user's: wherever that user's links lead, before the
// deployment was decided and after, nothing is written there.

import { chown, lchown, mkdir, readdir, readFile, rename, stat, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { folderOf, setVariable, withoutLinks } from '../deploy/container/environment-file.ts'
import { equal, is, match, rejects, withCode } from './assert.ts'
import { temporary } from './lab/temporary.ts'
import { suite } from './suite.ts'

const OTHER = 1000
const test = suite('environment file', { skip: process.getuid?.() === 0 ? null : 'needs root' })

test('sets the variable, and the file keeps its owner and its mode', async () => {
  await using at = await ground()
  await writeFile(at.file, 'A=1\nTAG=v1.0.0\n', { mode: 0o640 })
  await chown(at.file, OTHER, OTHER)
  await setVariable(await at.wanted())
  is(await readFile(at.file, 'utf8'), 'A=1\nTAG=v2.0.0\n')
  const { mode, uid, gid } = await stat(at.file)
  equal([mode & 0o777, uid, gid], [0o640, OTHER, OTHER])
  equal(await readdir(at.project), ['.env'])
})

test('makes the file if there is none, for the owner of the folder', async () => {
  await using at = await ground()
  await setVariable(await at.wanted())
  is(await readFile(at.file, 'utf8'), 'TAG=v2.0.0\n')
  const { mode, uid } = await stat(at.file)
  equal([mode & 0o777, uid], [0o600, OTHER])
})

test('a link of another user is refused by name, anywhere in the path and behind a link of root’s', async () => {
  await using at = await ground()
  await symlink(at.target, at.file)
  is(await withoutLinks(at.file), at.target)
  await lchown(at.file, OTHER, OTHER)
  const first = await rejects(withoutLinks(at.file), withCode('refused'))
  match(first.message, `${at.file} is a link owned by user id ${OTHER}: `)

  const [folder, roots] = [join(at.path, 'folder'), join(at.path, 'roots')]
  await symlink(at.path, folder)
  await lchown(folder, OTHER, OTHER)
  await symlink('folder', roots)
  await rejects(withoutLinks(join(roots, 'project/none')), /folder, which is a link owned by user id 1000/)
  await rejects(
    withoutLinks(join(at.path, 'project/../folder/root.env')),
    /folder, which is a link owned by user id 1000/,
  )
})

test('a file that has become a link since the deployment was decided is not followed', async () => {
  await using at = await ground()
  await writeFile(at.file, 'TAG=v1.0.0\n')
  const wanted = await at.wanted()
  await rename(at.file, join(at.project, 'mine'))
  await symlink(at.target, at.file)
  const { message } = await rejects(setVariable(wanted), withCode('refused'))
  match(message, `${at.file} is now a link`)
  await at.isUntouched()
})

test('a job that an older version of this program has written, which does not tell the folder, is finished all the same; not through a link', async () => {
  await using at = await ground()
  await writeFile(at.file, 'TAG=v1.0.0\n')
  const { folder: _, ...wanted } = await at.wanted()
  await setVariable(wanted)
  equal(await readFile(at.file, 'utf8'), `${wanted.variable}=${wanted.value}\n`)
  await rename(at.project, `${at.project}.mine`)
  await symlink(at.path, at.project)
  await rejects(setVariable(wanted))
  await at.isUntouched()
})

test('a folder that is a link or another one by now gets nothing', async () => {
  await using at = await ground()
  await writeFile(at.file, 'TAG=v1.0.0\n')
  const wanted = await at.wanted()
  await rename(at.project, `${at.project}.mine`)
  await symlink(at.path, at.project)
  await rejects(setVariable(wanted))
  await rejects(folderOf(at.file))
  await at.isUntouched()
  // as a bind mount of the path that now leads elsewhere would be
  await rename(at.project, `${at.project}.link`)
  await mkdir(at.project)
  match(
    (await rejects(setVariable(wanted), withCode('refused'))).message,
    `${at.project} has been replaced by another folder`,
  )
  equal(await readdir(at.project), [])
})

test.run()

/** Another user's project beside a file of root's. */
async function ground() {
  const room = await temporary('environment')
  const [project, target] = [join(room.path, 'project'), join(room.path, 'root.env')]
  await mkdir(project)
  await chown(project, OTHER, OTHER)
  await writeFile(target, 'SECRET=1\n', { mode: 0o600 })
  const file = join(project, '.env')
  return {
    path: room.path,
    project,
    target,
    file,
    wanted: async () => ({ environmentFile: file, folder: await folderOf(file), variable: 'TAG', value: 'v2.0.0' }),
    async isUntouched() {
      is(await readFile(target, 'utf8'), 'SECRET=1\n')
      equal(
        (await readdir(room.path)).filter((name) => name.startsWith('.')),
        [],
      )
    },
    [Symbol.asyncDispose]: () => room[Symbol.asyncDispose](),
  }
}
