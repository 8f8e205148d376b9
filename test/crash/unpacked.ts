// A process that unpacks an application beside an executable, or removes the folders that no release needs, and kills itself (SIGKILL) before one
// chosen change of the disk. Argument: a JSON object. Prints how many changes there were if it was not killed.

import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { makeDisk } from '../../agent/disk/disk.ts'
import { placesOf } from '../../agent/disk/places.ts'
import { sweepUnpacked } from '../../agent/disk/sweep.ts'
import type { OwnWords } from '../../deploy/make/first/release.ts'
import { die } from './die.ts'

export interface UnpackedCrash {
  doing: { unpack: OwnWords; archive: string } | { keep: string[] }
  service: string
  executable: string
  /** before which change of the disk to die, counted from 1; null: live */
  dieAt: number | null
}

const { doing, service, executable, dieAt } = JSON.parse(process.argv[2] ?? '') as UnpackedCrash
let changes = 0
const change = () => void (++changes === dieAt && die())

if ('keep' in doing) {
  const disk = makeDisk((moment) => void (moment === 'before' && change()))
  await sweepUnpacked(disk, service, placesOf(executable), doing.keep)
} else {
  // the first code of a release uses these, and no `Disk`
  for (const name of [
    'mkdirSync',
    'chmodSync',
    'openSync',
    'writeSync',
    'writeFileSync',
    'fsyncSync',
    'renameSync',
    'rmSync',
  ] as const) {
    const real = fs[name] as (...args: unknown[]) => unknown
    const seen = (...args: unknown[]): unknown => {
      change()
      return real(...args)
    }
    Object.assign(fs, { [name]: seen })
  }
  syncBuiltinESMExports()
  Object.assign(process, { execPath: executable })
  const { unpack } = await import('../../deploy/make/first/unpack.ts')
  const bytes = fs.readFileSync(doing.archive)
  unpack(doing.unpack, () => bytes)
}
console.log(changes)
