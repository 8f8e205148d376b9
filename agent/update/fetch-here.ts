// What a process does that was ordered to download a release (fetch.ts): it downloads, sums what it has written, and says how far it is.
// Must hold: it ends with the service that has ordered it, and no application runs in it.

import { writeSync } from 'node:fs'
import { text } from 'node:stream/consumers'
import { makeDisk } from '../disk/disk.ts'
import { ANSWER_FD } from '../disk/orders.ts'
import { endWithParent } from '../sockets/libc-later.ts'
import { asBatonError } from '../words/errors.ts'
import { openFeed } from './feed/open.ts'
import type { Fetch, Heard } from './fetch.ts'
import { makeDownload } from './steps/download.ts'
import { sha256OfFile } from './steps/verify.ts'

const BYTES_EVERY_MS = 200

export async function fetchHere(): Promise<void> {
  endWithParent()
  const { choice, service, trust, ...fetch } = JSON.parse(await text(process.stdin)) as Fetch
  const { release, partialPath, installedPath, needs } = fetch
  await using feed = openFeed(choice, {
    service,
    stateDirectory: null,
    trust,
    onLeftOut: (warning) => say({ warning }),
  })
  feed.expect?.(release)
  let bytes = 0
  const tellBytes = () => {
    if (bytes > 0) say({ bytes })
    bytes = 0
  }
  setInterval(tellBytes, BYTES_EVERY_MS).unref() // a connection may stand still after its last progress
  const download = makeDownload({
    feed,
    disk: makeDisk(),
    partialPath,
    installedPath,
    alsoNeeds: () => Promise.resolve(needs),
    onProgress(progress) {
      say({ progress, bytes })
      bytes = 0
    },
    onReceived: (more) => void (bytes += more),
    onDeltaFailed: (deltaFailed) => say({ deltaFailed }),
  })
  try {
    const { assetSha256 } = await download(release)
    const executableSha256 = await sha256OfFile(partialPath)
    tellBytes()
    say({ done: { assetSha256, executableSha256 } })
  } catch (cause) {
    const { code, message, hint, members } = asBatonError(cause, 'download_failed', `downloading ${release.tag}`)
    tellBytes()
    say({ failed: { code, message, hint, members } })
  }
}

/** Throws if nobody listens any more, which ends this process. */
function say(said: Heard): void {
  writeSync(ANSWER_FD, `${JSON.stringify(said)}\n`)
}
