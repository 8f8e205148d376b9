// `npm run apps [-- NAME… --systemd --image]`: all six applications (or those named), from the packed package, on this host and, where
// it is said, on one with systemd and in containers. Exit code 1 where a promise was broken.

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { packInto } from '../pack/main.ts'
import { adopt, APPS, faultsOf } from './adopt.ts'
import { PLACES } from './places.ts'

const wanted = process.argv.slice(2).filter((word) => !word.startsWith('--'))
const places = PLACES.filter((place) => process.argv.includes(`--${place}`))
const work = await mkdtemp(join(tmpdir(), 'baton-apps-'))
try {
  const packed = await packInto(work)
  for (const app of APPS.filter((name) => wanted.length === 0 || wanted.includes(name))) {
    const adopted = await adopt(app, packed, {
      say: (line) => void process.stderr.write(`${app}: ${line}\n`),
      places,
    })
    const faults = faultsOf(adopted)
    process.stdout.write(`${JSON.stringify({ ...adopted, faults })}\n`)
    if (faults.length > 0) process.exitCode = 1
  }
} finally {
  await rm(work, { recursive: true, force: true })
}
