// A process that carries out one operation on a managed install and kills itself (SIGKILL) at one chosen change of the disk.
// Arguments: a JSON object. Prints `{ "kinds": […], "beforeRestart": N, "outcome": … }` where it was not killed.
//
// The executables of this fixture are shell scripts that answer `--version`; everything else is the real thing.

import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { makeDisk } from '../../agent/disk/disk.ts'
import { openFeed } from '../../agent/update/feed/open.ts'
import { makeJournal } from '../../agent/disk/journal.ts'
import { takeLock } from '../../agent/disk/lock.ts'
import type { ManagedInstall } from '../../agent/disk/managed-install.ts'
import { begin } from '../../agent/update/operation.ts'
import { placesOf } from '../../agent/disk/places.ts'
import { recover } from '../../agent/update/ending.ts'
import { installedTag } from '../../agent/update/version.ts'
import { die } from './die.ts'

export interface CrashOptions {
  /** `start`: what a start does, then an update to `tag` */
  doing: 'update' | 'rollback' | 'start'
  executable: string
  stateDirectory: string
  database: string
  feed: string
  tag: string | null
  /** which change of the disk to die at, counted from 0, before or after it; null: live */
  dieAt: { change: number; moment: 'before' | 'after' } | null
  /** what the restart stage does */
  restart: 'succeeds' | 'fails'
}

const options = JSON.parse(process.argv[2] ?? '') as CrashOptions

let changes = 0
/** kinds of the changes, in their order */
const kinds: string[] = []
const disk = makeDisk((moment, kind) => {
  if (options.dieAt !== null && changes === options.dieAt.change && moment === options.dieAt.moment) die()
  if (moment === 'after') {
    changes++
    kinds.push(kind)
  }
})

void main()

async function main(): Promise<void> {
  const install = installOf(await installedTag(options.executable))
  const started = options.doing === 'start' ? await start(install) : null
  const kind = options.doing === 'rollback' ? 'rollback' : 'update'
  let beforeRestart = 0
  const running = await begin(install, { kind, tag: options.tag, who: 'a test' }, () => {
    beforeRestart = changes
    if (options.restart === 'fails') return Promise.reject(new Error('it fails on purpose'))
    return Promise.resolve({})
  })
  const { outcome, error } = await running.done
  console.log(JSON.stringify({ kinds, beforeRestart, outcome, error: error?.message ?? null, started }))
}

function installOf(current: string): ManagedInstall {
  return {
    service: 'svc',
    current,
    disk,
    places: placesOf(options.executable),
    stateDirectory: options.stateDirectory,
    database: options.database,
    feed: openFeed(options.feed, { service: 'svc', stateDirectory: null }),
    journal: makeJournal(disk, options.stateDirectory),
    readyMs: 60_000,
    next: null,
    log: () => {},
    runningImage: () => Promise.resolve(null),
    serves: false,
    receipt: { supervisor: 'none', configPath: join(options.stateDirectory, '..', 'config.json') },
  }
}

/** What a start of the service found and left. */
async function start(install: ManagedInstall) {
  await using _lock = await takeLock(disk, options.stateDirectory, 'a start')
  const probation = await recover(install)
  const { operation } = await install.journal.read()
  const { executable, backup, directory } = install.places
  const [one, other] = await Promise.all([stat(executable), stat(backup).catch(() => null)])
  return {
    onProbation: probation !== null,
    isClosed: operation === null || operation.outcome !== null,
    backup: other === null ? 'absent' : other.ino === one.ino ? 'the executable itself' : 'another file',
    beside: (await readdir(directory)).toSorted(),
  }
}
