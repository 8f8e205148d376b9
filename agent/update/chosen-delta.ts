// Which delta leads from the installed executable to a release, if one does. Changes nothing.

import { stat } from 'node:fs/promises'
import type { Delta, Release } from '../words/release.ts'
import { sha256OfFile } from './steps/verify.ts'

/** The file whose sum was taken last: whoever looks at a release asks again and again. */
let last: { file: string; sha256: Promise<string> } | null = null

/** Null: the whole asset has to be downloaded. `installed`: path of the executable. */
export async function deltaFor({ deltas }: Pick<Release, 'deltas'>, installed: string): Promise<Delta | null> {
  if (deltas.length === 0) return null
  const sha256 = await sumOf(installed).catch(() => null)
  return deltas.find(({ from }) => from === sha256) ?? null
}

/** What an update to this release downloads, if nothing goes wrong. */
export async function downloadBytes(release: Release, installed: string): Promise<number> {
  return (await deltaFor(release, installed))?.sizeBytes ?? release.asset.sizeBytes
}

/** sha256 of a file, read once as long as it stays the same. */
export async function sumOf(path: string): Promise<string> {
  const { dev, ino, size, mtimeNs, ctimeNs } = await stat(path, { bigint: true })
  const file = [path, dev, ino, size, mtimeNs, ctimeNs].join()
  if (last?.file !== file) {
    const own = (last = { file, sha256: sha256OfFile(path) })
    own.sha256.catch(() => last === own && (last = null))
  }
  return await last.sha256
}
