// Stage 3, verify: are these the published bytes, does the executable run here, and does it say that it is this release?
// The file is read from the disk again, as the kernel will read it at the start. Changes only the mode of `.partial`.

import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { stat } from 'node:fs/promises'
import type { Disk } from '../../disk/disk.ts'
import { BatonError } from '../../words/errors.ts'
import type { Steps } from '../story.ts'
import { expectTag } from '../version.ts'
import { within } from '../rethrow.ts'

export interface VerifyOptions {
  service: string
  disk: Disk
  /** how long `--version` may take to answer */
  timeoutMs?: number
}

export function makeVerify({ service, disk, timeoutMs }: VerifyOptions): Steps['verify'] {
  return async (candidate, { asset, tag }, signal) => {
    try {
      if (candidate.assetSha256 !== asset.sha256)
        throw different(`\`${asset.name}\``, asset.sha256, candidate.assetSha256)
      if (asset.executable !== null) {
        const { size } = await stat(candidate.path)
        if (size !== asset.executable.sizeBytes) {
          throw new BatonError(
            'verify_failed',
            `size of the executable: expected ${asset.executable.sizeBytes}, got ${size}`,
          )
        }
        const sha256 = candidate.executableSha256 ?? (await sha256OfFile(candidate.path))
        if (sha256 !== asset.executable.sha256) throw different('the executable', asset.executable.sha256, sha256)
      }
      await disk.chmod(candidate.path, 0o755)
      signal?.throwIfAborted()
      await expectTag(candidate.path, service, tag, { ...(timeoutMs === undefined ? {} : { timeoutMs }), signal })
      await expectTag(candidate.path, service, tag, { prepare: true, signal }) // unpack now, so that the switch need not wait for it
    } catch (error) {
      throw within(error, 'verify_failed', `verifying ${tag}`)
    }
  }
}

function different(what: string, expected: string, got: string): BatonError {
  return new BatonError('verify_failed', `sha256 of ${what}: expected ${expected}, got ${got}`)
}

/** Hex; reads the file in pieces of 1 MiB. */
export async function sha256OfFile(path: string): Promise<string> {
  const hash = createHash('sha256')
  for await (const chunk of createReadStream(path, { highWaterMark: 1024 * 1024 })) hash.update(chunk as Buffer)
  return hash.digest('hex')
}
