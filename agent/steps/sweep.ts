// What releases of kind `app` have unpacked beside the executable goes when neither the executable nor its backup needs it.
// What power failing leaves: a `.partial-…` that nobody starts, as the folder is renamed before the first file of it goes; the
// next unpacking removes it. Must hold: the folder of the executable and of the backup stay.

import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Disk } from '../disk.ts'
import type { Places } from '../places.ts'

/** `keep`: the tags that are still needed. Throws what the file system throws; the next sweep tries again. */
export async function sweepUnpacked(
  disk: Disk,
  service: string,
  places: Places,
  keep: readonly string[],
): Promise<void> {
  const home = join(places.directory, `.${service}`)
  for (const name of await readdir(home).catch(() => [])) {
    if (!/^[0-9a-f]{16}$/.test(name)) continue
    const tags = await readdir(join(home, name, 'tags')).catch(() => null)
    if (tags === null || tags.some((tag) => keep.includes(tag))) continue
    const aside = join(home, `.partial-${process.pid}-${name}`)
    await disk.rename(join(home, name), aside)
    await disk.removeFolder(aside)
  }
}
