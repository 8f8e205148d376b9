// The one importer of tuf-js, which decides whether signatures, versions and expiries are good (TUF 1.0). Travels as a script of
// its own that is compiled when a feed is first asked: it imports nothing of ours that has an identity, such as error classes.

import { canonicalize } from '@tufjs/canonical-json'
import { Updater } from 'tuf-js'
import { DownloadHTTPError } from 'tuf-js/dist/error.js'
import { TrustedMetadataStore } from 'tuf-js/dist/store.js'

export { canonicalize }

/** A file of the metadata by its name; null where there is none. */
export type FetchMetadata = (name: string, maxBytes: number) => Promise<Buffer | null>

export interface Bounds {
  rootMaxLength: number
  timestampMaxLength: number
  snapshotMaxLength: number
  targetsMaxLength: number
  maxRootRotations: number
}

/**
 * The client's workflow (TUF, 5): from the trusted files in `directory`, which has at least root.json, to those of the feed. What
 * has been verified is written there, also where it throws in the end. Everything thrown is the library's or `fetch`'s.
 */
export async function refreshTuf(directory: string, fetch: FetchMetadata, bounds: Bounds): Promise<void> {
  const fetcher = {
    async downloadBytes(url: string, maxBytes: number): Promise<Buffer> {
      const bytes = await fetch(decodeURIComponent(new URL(url).pathname.slice(1)), maxBytes)
      if (bytes === null) throw new DownloadHTTPError('there is no such file', 404)
      return bytes
    },
    downloadFile: () => Promise.reject(new Error('targets are not fetched here')),
  }
  const config = { ...bounds, maxDelegations: 0 }
  await new Updater({ metadataDir: directory, metadataBaseUrl: 'feed://metadata', fetcher, config }).refresh()
}

/** Throws unless a root is signed by as many of its own keys as it asks for. */
export function verifyRoot(bytes: Buffer): void {
  void new TrustedMetadataStore(bytes).root
}
