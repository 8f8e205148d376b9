// What a release does that is told to copy folders (BATON_COPY_FILES), for the executables of these tests, which are shell scripts. If a file
// `die-in-copy` beside the feed has a number, it kills the operation and itself before that change of the disk.

import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { type Beside, copyBeside } from '../../agent/disk/copy-beside.ts'
import { makeDisk } from '../../agent/disk/disk.ts'
import { die } from './die.ts'

const what = JSON.parse(process.env['BATON_COPY_FILES'] ?? '') as Beside
const dieAt = Number(read(join(dirname(what.from), 'die-in-copy')))
let changes = 0
const disk = makeDisk((moment) => void (moment === 'before' && ++changes === dieAt && die(process.ppid)))
await copyBeside(disk, what)

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return '0'
  }
}
