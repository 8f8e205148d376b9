// `baton doctor`: checks, one by one, what would make a build or a release fail. Changes nothing.

import { lstat, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { BatonError, formatNames, type ReleaseKind, reasonOf } from '../../agent/words.ts'
import type { Level } from '../lib/level.ts'
import { formatBytes } from '../lib/progress.ts'
import { findProgram } from '../lib/shell.ts'
import { BORNE } from '../lib/switch.ts'
import { addonHint, examineAddons, formatAddons, formatLeftOut } from './addons.ts'
import { detect, isBrought, sourceOf } from './detect.ts'
import { foreignEngines } from './engines.ts'
import { databasesOf, filesOf, formatDatabases, formatLinksOut, linksOut } from './files.ts'
import { aboutForks, aboutMoving, forkingFile, movingFile } from './forks.ts'
import { faultOfDevPackage, PACKAGE } from './init.ts'
import { provideNode } from './node.ts'
import { type Project, readProject } from './project.ts'
import { commitOf, uncommittedIn } from './publication.ts'

export interface AuthorFinding {
  check: string
  level: Level
  message: string
  hint: string | null
}

type Check = (project: Project) => Promise<[AuthorFinding['level'], string, (string | undefined)?]>

/** above this size the finding says how much memory a build takes */
const LARGE_BYTES = 256e6
/** measured: `node --build-sea` took 8.0 GB for 691 MB */
const MEMORY_PER_BYTE = 11.5

const PACKS = {
  app: 'the whole folder in one executable',
  bundle: 'one script in an executable',
  script: "one script, run by the host's Node 26",
} as const satisfies Record<ReleaseKind, string>

const CHECKS: Record<string, Check> = {
  node: async () => ['ok', `Node 26 for the executable: ${await provideNode()}`],
  async files(project) {
    if (project.kind !== 'app') return ['ok', `kind ${project.kind} packs ${project.entry}`]
    const files = await filesOf(project)
    const hasEntry = files.some(({ path }) => path === project.entry)
    const bytes = (await Promise.all(files.map(({ source }) => lstat(source)))).reduce((sum, { size }) => sum + size, 0)
    const said = `${files.length} ${files.length === 1 ? 'file goes' : 'files go'} into the release`
    if (hasEntry && bytes > LARGE_BYTES)
      return [
        'warning',
        `${said} (${formatBytes(bytes)}): each update includes all of them, and a build takes about ${Math.ceil((bytes * MEMORY_PER_BYTE) / 1e9)} GB of memory`,
        'use `exclude` for files that the application can fetch into its state directory',
      ]
    return hasEntry
      ? ['ok', said]
      : [
          'problem',
          `the entry ${project.entry} is not among the files of the release`,
          'run `build`, or correct `entry` and `include`',
        ]
  },
  async links(project) {
    const said = project.kind === 'app' ? formatLinksOut(await linksOut(await filesOf(project))) : null
    return said === null
      ? ['ok', 'no links point outside the release']
      : ['warning', said, 'replace the links with copies of their targets, or add them to `exclude`']
  },
  async databases(project) {
    const said = project.kind === 'app' ? formatDatabases(await databasesOf(await filesOf(project))) : null
    return said === null
      ? ['ok', 'the release contains no SQLite database']
      : ['warning', said, 'move them out of the folder, or add them to `exclude`, unless every host needs them']
  },
  async addons(project) {
    if (project.kind !== 'app') {
      const left = formatLeftOut(project.kind, detect(project.folder).natives)
      return left === null ? ['ok', 'no native addons'] : ['warning', left, '`"kind": "app"`']
    }
    const report = await examineAddons(await filesOf(project))
    const odd = report.packages.filter(({ verdict }) => verdict !== 'works')
    const said = (odd.length > 0 ? odd : report.packages).map((one) => formatAddons(one, report.node)).join('; ')
    const isProblem = odd.some(({ verdict }) => verdict === 'other-abi' || verdict === 'fails')
    const message = said === '' ? 'no native addons' : `native addons: ${said}`
    return [isProblem ? 'problem' : odd.length > 0 ? 'warning' : 'ok', message, addonHint(report) ?? undefined]
  },
  async engines({ folder }) {
    const foreign = await foreignEngines(folder)
    return foreign === null
      ? ['ok', 'no package rules out Node 26']
      : ['warning', foreign, 'many packages run despite their `engines`: `build` starts the release once to check']
  },
  async agent({ folder, kind, entry }) {
    const { source, devPackages } = detect(folder)
    const late = faultOfDevPackage(devPackages)
    if (kind === 'app' && late !== null) return ['problem', late.message, late.hint]
    const path = isBrought(entry) ? null : (sourceOf(folder, entry) ?? source)
    const text = path === null ? '' : await readFile(join(folder, path), 'utf8')
    return text.includes(`${PACKAGE}/`)
      ? ['ok', `${path ?? ''} loads Baton`]
      : [
          'warning',
          'the entry does not import the agent',
          'run `baton init` to add the import: without it, the service can be installed but cannot update itself',
        ]
  },
  async processes({ folder, entry }) {
    const file = forkingFile(folder, sourceOf(folder, entry) ?? entry)
    if (file === null) return ['ok', 'one process: found nothing that forks node:cluster workers']
    const { message, hint } = aboutForks(file)
    return ['warning', message, hint]
  },
  async folder({ folder, entry, args }) {
    const file = movingFile(folder, sourceOf(folder, entry) ?? entry)
    if (file === null) return ['ok', 'found no code that changes the working directory to the application’s own folder']
    const { message, hint } = aboutMoving(file, args)
    return ['warning', message, hint]
  },
  order: async ({ order }) =>
    order === 'start-first'
      ? [
          'ok',
          'order: start-first, so two processes run at once; `build` starts the release and lists any locks and ports that only one process can hold',
        ]
      : ['ok', `order: stop-first, so clients wait until the new process is serving; ${BORNE}`],
  health: async ({ healthPath }) =>
    healthPath === null
      ? [
          'warning',
          'no `healthPath`: an update can check only that the release runs, not that it is healthy',
          'set `healthPath` to a route that returns 2xx',
        ]
      : ['ok', `health at ${healthPath}`],
  trial: async ({ database, trial }) => {
    if (database === null) return ['ok', 'no `database`: updates make no copy of the data and run no trial']
    const writes = trial?.requests?.some(({ method = 'GET' }) => !['GET', 'HEAD'].includes(method)) === true
    return writes || trial?.mode === 'never'
      ? ['ok', `database ${database}`]
      : [
          'warning',
          `database ${database}, but no \`trial\` request writes to it, so no update can verify that it could be rolled back`,
          'name one in `trial.requests`, such as a POST (docs/author/migrations.md)',
        ]
  },
  feed: async ({ feed, publish }) =>
    feed === null && publish === null
      ? ['ok', 'no `feed`: hosts look for releases in the folder that contains install.sh']
      : ['ok', `hosts look for releases at ${feed ?? publish ?? ''}`],
  async commit({ folder }) {
    const commit = await commitOf(folder)
    if (commit === null)
      return [
        'warning',
        'no commit: the release has no date and cannot be reproduced byte for byte',
        'run `git init` and commit',
      ]
    const changed = await uncommittedIn(folder)
    const name = `commit ${commit.slice(0, 12)}`
    return changed.length === 0
      ? ['ok', name]
      : ['warning', `${name}; changed since: ${formatNames(changed, 5)}`, 'commit before you build a release']
  },
  async publish({ publish }) {
    if (publish === null) return ['ok', 'no `publish`: specify the target with --to']
    const program = !publish.startsWith('github:') && /^[^/]+:/.test(publish) ? 'rsync' : null
    if (program === null || (await findProgram(program)) !== null) return ['ok', `publishes to ${publish}`]
    return ['problem', `expected \`${program}\` on PATH for ${publish}, found none`, 'install it']
  },
}

export async function examineProject(folder: string): Promise<AuthorFinding[]> {
  let project: Project
  try {
    project = await readProject(folder)
  } catch (error) {
    return [findingOf('config', error)]
  }
  const findings: AuthorFinding[] = [
    {
      check: 'config',
      level: 'ok',
      message: `${project.service}, kind ${project.kind}: ${PACKS[project.kind]}`,
      hint: null,
    },
  ]
  for (const [check, look] of Object.entries(CHECKS)) {
    try {
      const [level, message, hint = null] = await look(project)
      findings.push({ check, level, message, hint })
    } catch (error) {
      findings.push(findingOf(check, error))
    }
  }
  return findings
}

function findingOf(check: string, error: unknown): AuthorFinding {
  return { check, level: 'problem', message: reasonOf(error), hint: error instanceof BatonError ? error.hint : null }
}
