// What `deploy-npm` does apart from the host, each in a process of its own: looks at a package that is started once from source, builds
// the addons that may be built, makes the release, and starts and switches that once. Each resolves to what the program outside reads.

import { createReadStream, createWriteStream } from 'node:fs'
import { chmod } from 'node:fs/promises'
import { join } from 'node:path'
import { pipeline } from 'node:stream/promises'
import { createZstdDecompress } from 'node:zlib'
import { asBatonError, BatonError, EXIT, MEANINGS, reasonOf } from '../../agent/words.ts'
import { printJson } from '../lib/printer.ts'
import { createProgress } from '../lib/progress.ts'
import { run } from '../lib/shell.ts'
import { examineAddons, formatAddons } from './addons.ts'
import { buildApplication } from './application.ts'
import { type Detected, detect } from './detect.ts'
import { filesOf } from './files.ts'
import { provideHeaders, provideNode } from './node.ts'
import { readProject } from './project.ts'
import { headersFault, rebuildEnvironment } from './rebuild.ts'
import { assetName } from './release-folder.ts'
import { startFromSource } from './source-start.ts'
import { tryOut } from './trial-start.ts'

interface Inside {
  do: 'see' | 'rebuild' | 'compose' | 'try'
  /** the folder that is built in */
  work: string
  tag: string
  /** folder that gets the release */
  out: string
  feed: string
  /** the file that starts the package, from `work` */
  file: string
  /** packages whose install scripts may run */
  scripts: readonly string[]
  notes: string
  publishedAt: string | null
  /** an npm-cli.js */
  npm: string
  /** where the release before this one answers; null: nobody knows */
  healthPath: string | null
}

/** what the operator of a package from npm has in the place of a baton.config.json, which this kit writes there */
const RECIPE = 'a recipe (`--recipe FILE`)'
const REBUILD_MS = 30 * 60_000

/** `text`: what is asked, as JSON. Prints what comes of it, and resolves to the exit code. */
export async function answerInside(text: string): Promise<number> {
  try {
    const asked = JSON.parse(text) as Inside
    const done = await { see, rebuild, compose, try: tryIt }[asked.do](asked)
    printJson({ done })
    return EXIT.done
  } catch (cause) {
    const { code, message, hint } = asBatonError(cause, 'unexpected', 'inside')
    printJson({ failed: { code, message, hint } })
    return MEANINGS[code].exit
  }
}

async function see({ work, file, healthPath }: Inside): Promise<unknown> {
  const project = await readProject(work, RECIPE)
  const found: Detected = {
    ...detect(work),
    entry: file,
    made: null,
    brought: null,
    before: [],
    nodeFlags: project.nodeFlags,
    healthPath,
  }
  return await startFromSource(work, found, project)
}

interface Rebuilt {
  /** a line for each addon that does not work, and what building them said */
  failures: string[]
  /** packages whose addon does not work, of those that say how it is built */
  unbuilt: string[]
}

async function rebuild({ work, scripts, npm }: Inside): Promise<Rebuilt> {
  const node = await provideNode()
  const headers = scripts.length > 0 ? await provideHeaders() : null
  const failures: string[] = []
  if (scripts.length > 0) {
    const env = { ...rebuildEnvironment(node, headers), npm_config_cache: '/tmp/npm' }
    const command = [
      node,
      npm,
      'rebuild',
      ...scripts,
      '--ignore-scripts=false',
      '--foreground-scripts',
      '--no-audit',
      '--no-fund',
    ]
    const { exitCode, stdout, stderr } = await run(command, {
      cwd: work,
      env,
      allowFailure: true,
      timeoutMs: REBUILD_MS,
    })
    if (exitCode !== 0)
      failures.push(
        `building ${scripts.join(', ')} failed: ${`${stdout}\n${stderr}`.trim().split('\n').slice(-12).join(' · ').slice(0, 1500)}`,
      )
  }
  const report = await examineAddons(await filesOf(await readProject(work, RECIPE)))
  const bad = report.packages.filter(({ verdict }) => verdict !== 'works')
  const fault = failures.length === 0 ? null : headersFault(report.node, headers)
  if (fault !== null) failures.push(`${fault.message}; ${fault.hint}`)
  return {
    failures: [...failures, ...bad.map((one) => formatAddons(one, report.node))],
    unbuilt: bad.filter(({ canBuild }) => canBuild).map(({ name }) => name),
  }
}

async function compose({ work, tag, out, feed, notes, publishedAt }: Inside): Promise<{ sizeBytes: number }> {
  const { executable } = await buildApplication({
    project: await readProject(work, RECIPE),
    tag,
    out,
    feed,
    notes,
    effort: 'fast',
    publishedAt,
    force: true,
    deltas: null,
    make: false,
    trial: false,
    progress: createProgress(),
  })
  return { sizeBytes: executable.sizeBytes }
}

async function tryIt({ work, tag, out }: Inside): Promise<{ line: string; warnings: string[] }> {
  const project = await readProject(work, RECIPE)
  const executable = join('/tmp', project.service)
  await pipeline(
    createReadStream(join(out, tag, `${assetName(project.service)}.zst`)),
    createZstdDecompress(),
    createWriteStream(executable, { flags: 'wx' }),
  ).catch((cause: unknown) => {
    throw new BatonError('verify_failed', `unpacking the built executable: ${reasonOf(cause)}`, { cause })
  })
  await chmod(executable, 0o755)
  return await tryOut(project, executable)
}
