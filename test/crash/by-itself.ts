// A process that looks at what its schedule has to do, once or as a service that is started again at each of several times, and kills
// itself (SIGKILL) at one chosen change of the disk. Prints what came of the last look where it was not killed.

import { makeDisk } from '../../agent/disk/disk.ts'
import { makeJournal } from '../../agent/disk/journal.ts'
import { takeLock } from '../../agent/disk/lock.ts'
import type { ManagedInstall } from '../../agent/disk/managed-install.ts'
import { placesOf } from '../../agent/disk/places.ts'
import type { Anchor } from '../../agent/words/release.ts'
import { openFeed } from '../../agent/update/feed/open.ts'
import { recover } from '../../agent/update/ending.ts'
import { begin } from '../../agent/update/operation.ts'
import { attendOnce } from '../../agent/update/schedule/attend.ts'
import { readMemory } from '../../agent/update/schedule/memory.ts'
import { installedTag } from '../../agent/update/version.ts'
import { die } from './die.ts'

export interface LookOptions {
  executable: string
  stateDirectory: string
  database: string
  feed: string
  configPath: string
  /** epoch milliseconds of the clock */
  now: number
  /** further looks, each after a start */
  afterwards?: readonly number[]
  /** what the clock is set to once an update has begun */
  later?: number
  dieAt: { change: number; moment: 'before' | 'after' } | null
  /** the root of a signed feed */
  trust?: Anchor
  /** another process that looks at the same time */
  beside?: boolean
}

const options = JSON.parse(process.argv[2] ?? '') as LookOptions
const { stateDirectory, dieAt } = options
let changes = 0
const disk = makeDisk((moment) => {
  if (dieAt !== null && changes === dieAt.change && moment === dieAt.moment) die()
  if (moment === 'after') changes++
})
void main()

async function main(): Promise<void> {
  let said = ''
  for (const now of [options.now, ...(options.afterwards ?? [])]) said = await look(now)
  console.log(said)
}

async function look(now: number): Promise<string> {
  const feed = openFeed(options.feed, { service: 'svc', stateDirectory, trust: options.trust ?? null })
  const install: ManagedInstall = {
    service: 'svc',
    current: await installedTag(options.executable),
    disk,
    places: placesOf(options.executable),
    stateDirectory,
    database: options.database,
    feed,
    journal: makeJournal(disk, stateDirectory),
    readyMs: 60_000,
    next: null,
    log: () => {},
    runningImage: () => Promise.resolve(null),
    serves: false,
    receipt: { supervisor: 'none', configPath: options.configPath },
  }
  if (options.beside !== true) {
    await using _lock = await takeLock(disk, stateDirectory, 'a start')
    await recover(install)
  }
  let begun = 0
  let done: Promise<unknown> = Promise.resolve()
  await attendOnce({
    install,
    feed,
    settings: { service: 'svc', order: 'start-first', update: { maxPauseMs: 10_000 } as never },
    leaving: new AbortController().signal,
    now: () => (begun === 0 ? now : (options.later ?? now)),
    async start(asked) {
      const running = await begin(install, { ...asked, who: 'the schedule' }, () => Promise.resolve({}))
      begun++
      done = running.done
    },
  })
  await done
  return JSON.stringify({ changes, begun, memory: await readMemory(stateDirectory) })
}
