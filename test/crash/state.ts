// A process that carries out one operation which exchanges the database, and the starts of releases in it, and kills itself (SIGKILL)
// before one chosen change of the disk. Argument: a JSON object. Prints what became of it if it was not killed.
//
// The executables are shell scripts that answer `--version`. Each release has a column of its own: it renames the one of the release
// before, and cannot work with a later one. Everything else is the real thing: the operation, the first code's part, the recovery.

import { appendFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { makeDisk } from '../../agent/disk/disk.ts'
import { makeJournal } from '../../agent/disk/journal.ts'
import { takeLock } from '../../agent/disk/lock.ts'
import type { ManagedInstall } from '../../agent/disk/managed-install.ts'
import type { Receipt } from '../../agent/disk/receipt.ts'
import { placesOf } from '../../agent/disk/places.ts'
import { exchangeNow, ownState } from '../../agent/disk/state-mark.ts'
import { noteStart } from '../../agent/own.ts'
import { recover, settleProbation } from '../../agent/update/ending.ts'
import { openFeed } from '../../agent/update/feed/open.ts'
import { keptCopies } from '../../agent/update/kept-copies.ts'
import { begin } from '../../agent/update/operation.ts'
import { operatorsUpdate } from '../../agent/update/operator.ts'
import { restoreCopies } from '../../agent/update/restore-copies.ts'
import { rescue } from '../../agent/update/rescue.ts'
import { installedTag } from '../../agent/update/version.ts'
import { planOf } from '../../agent/words/snapshot.ts'
import type { Operation } from '../../agent/words/state.ts'
import { die } from './die.ts'

export interface StateCrash {
  /**
   * `start`: what a start of the service does, and then nothing more. `restore`: `state restore` of the copy `restored`. `rescue`: an update
   * whose release dies on probation, until the rescue puts the old one back. `restore-rest`: `state restore` of the copy `rest` of what is
   * not in SQLite
   */
  doing: 'update' | 'rollback' | 'restore' | 'restore-rest' | 'rescue' | 'start'
  /** name of a copy; '' for all but `restore-rest` */
  rest: string
  executable: string
  stateDirectory: string
  database: string
  feed: string
  /** where the rows are noted that were acknowledged, on another disk */
  acknowledged: string
  restored: string
  /** before which change of the disk to die, counted from 1; null: live */
  dieAt: number | null
  /** whether the release that is started serves */
  isGood: boolean
}

const COLUMNS = ['text', 'body', 'words']
const TAGS = ['v0.9.0', 'v1.0.0', 'v1.1.0']

const options = JSON.parse(process.argv[2] ?? '') as StateCrash
let changes = 0
const change = () => void (++changes === options.dieAt && die())
const disk = makeDisk((moment) => void (moment === 'before' && change()))
const { executable, stateDirectory, database, doing, feed } = options
noteStart({ argv: [], executable, isChild: false, directory: null, configuration: null })
const install: ManagedInstall = {
  service: 'svc',
  current: await installedTag(executable),
  disk,
  places: placesOf(executable),
  stateDirectory,
  database,
  feed: openFeed(feed, { service: 'svc', stateDirectory: null }),
  journal: makeJournal(disk, stateDirectory),
  readyMs: 60_000,
  next: null,
  log: (event) => {
    // a rehearsal needs systemd; what it would have said
    if (event.event === 'operation' && event.stage === 'swap' && operation !== null) operation.trial = IRREVERSIBLE
  },
  runningImage: () => Promise.resolve(null),
  serves: false,
  receipt:
    options.doing === 'restore-rest' ? { supervisor: 'none', configPath: join(dirname(feed), 'config.json') } : null,
}
const IRREVERSIBLE = {
  verdict: 'irreversible',
  reason: 'a test',
  rows: 1,
  copyMs: 1,
  migrationMs: 1,
  tookMs: 1,
} as const
let operation: Operation | null = null

/** A release is started: its first code, its migration, a row that it acknowledges. Throws if it cannot work on the data. */
function serve(tag: string): void {
  ownState(stateDirectory, tag, change)
  const rows = new DatabaseSync(database)
  rows.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL')
  const own = TAGS.indexOf(tag)
  const column = () =>
    String(rows.prepare("SELECT name FROM pragma_table_info('notes') WHERE name <> 'id'").get()?.['name'])
  for (let at = COLUMNS.indexOf(column()); at < own; at++)
    rows.exec(`ALTER TABLE notes RENAME COLUMN ${COLUMNS[at]} TO ${COLUMNS[at + 1]}`)
  if (column() !== COLUMNS[own]) throw new Error(`${tag} cannot work on the data of ${TAGS[COLUMNS.indexOf(column())]}`)
  const text = `row of ${tag}, ${process.pid}`
  rows.prepare(`INSERT INTO notes VALUES (?)`).run(text)
  appendFileSync(options.acknowledged, `${text}\n`)
  rows.close()
}

async function conduct(kind: 'update' | 'rollback', open = false): Promise<void> {
  const asked = kind === 'update' ? { tag: 'v1.1.0', allowIrreversible: true } : { tag: null, restoreState: true }
  const running = await begin(install, { kind, who: 'a test', ...asked }, (to) => {
    serve(to)
    return options.isGood ? Promise.resolve({ open }) : Promise.reject(new Error('it fails on purpose'))
  })
  operation = running.operation
  const { outcome } = await running.done
  if (outcome === 'reverted') serve(await installedTag(executable)) // as the command does
}

async function rescued(): Promise<void> {
  await conduct('update', true)
  const receipt = { stateDirectory, executable } as Receipt
  for (const _failure of ['first', 'second']) await rescue(receipt, { failed: true, reason: 'it exited with code 1' })
  serve(await installedTag(executable))
}

async function start(): Promise<void> {
  serve(await installedTag(executable))
  await using _lock = await takeLock(disk, stateDirectory, 'a start')
  if ((await recover(install)) !== null) await settleProbation(install)
}

if (doing === 'start') await start()
else if (doing === 'rescue') await rescued()
else if (doing === 'restore') {
  await using _lock = await takeLock(disk, stateDirectory, 'state restore')
  const by = { database, tag: install.current, refuse: () => Promise.resolve() }
  await exchangeNow(stateDirectory, options.restored, by, change)
} else if (doing === 'restore-rest') {
  await using _lock = await takeLock(disk, stateDirectory, 'state restore')
  const plan = planOf(null, (await operatorsUpdate(install))?.['snapshot'])
  const copy = (await keptCopies(stateDirectory, null)).find(({ name }) => name === options.rest)
  if (plan === null || copy === undefined) throw new Error(`there is no ${options.rest}`)
  const refuse = () => Promise.resolve()
  await restoreCopies({ disk, stateDirectory, tag: install.current, executable, plan, copy, refuse })
} else await conduct(doing)
const { operation: last } = await install.journal.read()
console.log(JSON.stringify({ changes, tag: await installedTag(executable), operation: last }))
