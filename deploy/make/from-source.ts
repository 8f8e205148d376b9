// Makes a release for `baton dev`: a copy of the author's files beside their packages, and a script that starts it. It makes no
// executable and no bundle, so it takes only as long as copying a few files.

import { existsSync } from 'node:fs'
import { copyFile, mkdir, symlink, writeFile } from 'node:fs/promises'
import { dirname, join, relative, sep } from 'node:path'
import { RELEASE_FILE } from '../../agent/first.ts'
import { makeFirst, ourScript, scriptOf, wordsOf } from './application.ts'
import { filesOf } from './files.ts'
import { PRELOAD, preloadText } from './preload.ts'
import type { Project } from './project.ts'
import { publishRelease } from './release-folder.ts'
import { temporaryDirectory } from './temporary.ts'
import type { ProgressReport } from '../lib/progress.ts'

export interface SourceRelease {
  project: Project
  tag: string
  /** folder inside the project, so that Node finds its packages; a copy of the sources goes into `<copies>/<tag>/` */
  copies: string
  /** folder that is the feed */
  feed: string
  progress: ProgressReport
}

export async function releaseFromSource({ project, tag, copies, feed, progress }: SourceRelease): Promise<void> {
  await makeFirst(project, progress)
  const copy = join(copies, tag)
  const modules = join(project.folder, 'node_modules') + sep
  for (const { path, source } of await filesOf(project)) {
    if (source.startsWith(modules)) continue // Node finds it from the copy too
    await mkdir(dirname(join(copy, path)), { recursive: true })
    await copyFile(source, join(copy, path))
  }
  // for a path such as ./node_modules/x/server.js, which Node does not look for in the folders above
  if (existsSync(modules) && !existsSync(join(copy, 'node_modules'))) await symlink(modules, join(copy, 'node_modules'))
  await using work = await temporaryDirectory(feed)
  const executable = join(work.path, project.service)
  const words = { ...wordsOf({ ...project, kind: 'script' }, tag, null, null) }
  const preload = preloadText(project.nodeFlags)
  if (preload !== null) await writeFile(join(copy, PRELOAD), preload)
  await writeFile(join(copy, RELEASE_FILE), JSON.stringify(words))
  const constants = {
    __BATON_RELEASE__: JSON.stringify(words),
    __BATON_OPERATOR__: Buffer.from(await ourScript('operator')).toString(),
    __BATON_ENTRY__: join(copy, project.entry),
    __BATON_FOLDER__: copy,
    __BATON_CWD__: project.cwd,
    __BATON_PRELOAD__: preload === null ? '' : join(copy, PRELOAD),
  }
  const lines = Object.entries(constants).map(([name, value]) => `const ${name} = ${JSON.stringify(value)}`)
  const text = `${lines.join('\n')}\n${Buffer.from(await ourScript('source')).toString()}`
  await writeFile(executable, scriptOf(text, words.nodeFlags), { mode: 0o755 })
  const { service, schema, healthPath, port, basePath } = project
  const base = basePath === '' ? {} : { basePath }
  await publishRelease({
    executable,
    tag,
    out: feed,
    service,
    feed,
    notes: `from ${relative(dirname(project.folder), project.folder)}`,
    effort: 'fast',
    schema,
    publishedAt: null,
    force: true,
    progress,
    about: { kind: 'script', healthPath, port, ...base, order: project.order },
  })
}
