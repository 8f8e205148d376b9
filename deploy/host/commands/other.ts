// Installs another release than this program's. install.sh fetches only the release whose checksum it holds. So this program finds,
// verifies and runs a newer release, or one named by its tag, and trusts the root keys that it was built with.
// Must hold: it runs the other release only after verifying it, from a folder that only the user of this command can write in.

import { join } from 'node:path'
import { COMMAND, makeDisk, makeDownload, makeVerify, openFeed } from '../../../agent/install.ts'
import { BatonError, compareTags, type Release } from '../../../agent/words.ts'
import { runInPlace } from '../../lib/shell.ts'
import { temporaryFolder } from '../../lib/trusted.ts'
import type { Context } from './context.ts'

type Feed = ReturnType<typeof openFeed>

/** the tag that the program which started this one found to be the latest; this one does not look again */
const FOUND = 'BATON_FOUND_LATEST'

/** Null if this program's own release was asked for; else the exit code of the other one. `feed`: where to look for it. */
export async function installOther(
  context: Context,
  feed: string,
  release: string | null,
  argv: readonly string[],
): Promise<number | null> {
  const { service, tag, environment, report } = context
  // if no release is named, install the one that install.sh came with
  if (release === null || release === tag || (release === 'latest' && environment[FOUND] === tag)) return null
  await using open = openFeed(feed, { service, stateDirectory: null })
  report.stage('check')
  const found = release === 'latest' ? await newestOf(open) : await open.byTag(release)
  if (found === null) throw new BatonError('release_not_found', `${feed} has no release`)
  if (release === 'latest' && compareTags(found.tag, tag) <= 0) return null // never downgrade: a mirror may lag
  // the service's user reads it during the install
  await using folder = await temporaryFolder(`${service}-install.`, 0o755)
  const path = join(folder.path, service)
  await fetchTo(path, found, open, context)
  report.leave()
  const env = { ...environment, [FOUND]: found.tag, BATON_DEFAULT_FEED: feed, [COMMAND]: '1' }
  // a terminal signals both processes; this one must outlive the other, to remove the folder
  return await runInPlace([path, 'install', ...argv], { env }, ['SIGINT', 'SIGTERM'])
}

/** Installs the newest release or nothing: a feed that withholds the newest must not be able to choose an older one. */
async function newestOf(feed: Feed): Promise<Release | null> {
  const { release, problem } = await feed.latest(() => false)
  if (problem !== null) throw problem
  return release
}

async function fetchTo(path: string, release: Release, feed: Feed, { service, report }: Context): Promise<void> {
  const disk = makeDisk()
  const onProgress = ({ bytes, totalBytes }: { bytes: number; totalBytes: number }) => report.bytes(bytes, totalBytes)
  report.stage('download')
  const candidate = await makeDownload({ feed, disk, partialPath: path, onProgress })(release)
  report.stage('verify')
  await makeVerify({ service, disk })(candidate, release)
}
