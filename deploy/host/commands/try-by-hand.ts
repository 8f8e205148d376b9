// `<executable> snapshot FILE --try NEW`: copies the database to FILE, and tries the executable NEW on a copy of that, for somebody who
// replaces the file without an installer. The present executable performs it, as on a host with systemd (agent/update/rehearsal/).
// Must hold: the service and its data are not touched; the releases see the copy in the place of the state directory, no process and no
// network of the host. This is weaker than systemd's cage: the releases can write every other file that this user can write. If the
// kernel allows no namespaces, nothing is tried. The copy of the copy is always removed.

import { copyFile, mkdir, stat } from 'node:fs/promises'
import { dirname, join, relative, resolve, sep } from 'node:path'
import {
  AUTO_MAX_BYTES,
  copyBeside,
  judge,
  makeDisk,
  mebibytes,
  ownDatabase,
  ownExecutable,
  ownRelease,
  runVersion,
  startMsAfter,
  UPDATE_BOUNDS,
} from '../../../agent/install.ts'
import { snapshot } from '../../../agent/service/snapshot.ts'
import type { Build } from '../../../agent/service/build.ts'
import { type Environment, readSettings } from '../../../agent/service/config.ts'
import {
  asBatonError,
  BatonError,
  formatRehearsal,
  MEANINGS,
  reasonOf,
  type Rehearsal,
  type Untried,
} from '../../../agent/words.ts'
import { performBy } from '../../lib/perform.ts'
import { printError, printLine } from '../../lib/printer.ts'
import { temporaryFolder } from '../../lib/trusted.ts'

/** What unshare runs: its arguments are the copy, the state directory, and the performer's words. */
const INSIDE = 'ip link set lo up && mount --bind "$1" "$2" && cd "$2" && shift 2 && exec "$@"'
const WALLS = [
  '--user',
  '--map-root-user',
  '--net',
  '--ipc',
  '--pid',
  '--fork',
  '--kill-child=SIGKILL',
  '--mount',
  '--mount-proc',
]

export async function snapshotAndTry(build: Build, argv: readonly string[], environment: Environment): Promise<number> {
  const at = argv.indexOf('--try')
  const [file = '', ...rest] = [...argv.slice(0, at), ...argv.slice(at + 2)]
  try {
    const candidate = argv[at + 1]
    if (candidate === undefined || file === '-')
      throw new BatonError('invalid_request', 'expected `snapshot FILE --try EXECUTABLE`')
    const code = await snapshot(build, [file, ...rest], environment)
    if (code !== 0) return code
    const { stateDirectory } = readSettings(build.service, rest, environment)
    const what = { service: build.service, stateDirectory, copy: resolve(file), candidate: resolve(candidate) }
    const rehearsal = await tryOn(what)
    printLine(formatRehearsal(rehearsal))
    if (rehearsal.hint !== undefined) printLine(`hint: ${rehearsal.hint}`)
    if (rehearsal.verdict !== 'irreversible') return 0
    throw new BatonError(
      'irreversible',
      'rolling back from this release would also require restoring the copy of the data; nothing has changed',
    )
  } catch (cause) {
    const error = asBatonError(cause, 'unexpected', 'trying a release')
    printError(error)
    return MEANINGS[error.code].exit
  }
}

interface ByHandTrial {
  service: string
  stateDirectory: string
  /** of the database */
  copy: string
  candidate: string
}

/** Throws verify_failed if the release fails on the copy, or is another service's. */
async function tryOn({ service, stateDirectory, copy, candidate }: ByHandTrial): Promise<Rehearsal> {
  const began = performance.now()
  const nothing = { verdict: 'untried', rows: null, copyMs: null, migrationMs: null } as const
  const ended = (more: Partial<Rehearsal> & Untried): Rehearsal => {
    return { ...nothing, ...more, tookMs: Math.round(performance.now() - began) }
  }
  const offered = await runVersion(candidate)
  if (offered.service !== service)
    throw new BatonError('verify_failed', `${candidate} is an executable of ${offered.service}, not of ${service}`)
  const present = ownExecutable() ?? process.execPath
  const database = relative(stateDirectory, ownDatabase(service, stateDirectory) ?? stateDirectory)
  const { size } = await stat(copy)
  if (size > AUTO_MAX_BYTES)
    return ended({
      code: 'database_size',
      reason: `the database is ${mebibytes(size)}, but a trial copies at most ${mebibytes(AUTO_MAX_BYTES)}`,
    })
  const inside = [present, candidate].find((path) => path.startsWith(stateDirectory + sep))
  if (inside !== undefined)
    return ended({
      code: 'trial_failed',
      reason: `${inside} is in the state directory, which in a trial has only a copy of the data`,
    })
  const tags = { from: ownRelease().tag, to: offered.tag }
  await using folder = await temporaryFolder(`${service}-trial.`)
  try {
    const to = join(folder.path, database)
    await mkdir(dirname(to), { recursive: true })
    await copyFile(copy, to)
    const files = ownRelease().rehearse?.files ?? []
    await copyBeside(makeDisk(), { from: stateDirectory, to: folder.path, files })
    const copyMs = Math.round(performance.now() - began)
    const what = {
      present,
      candidate,
      database,
      state: folder.path,
      startMs: startMsAfter(copyMs, UPDATE_BOUNDS.readyMs[2]),
    }
    const words = [folder.path, stateDirectory, present, 'as-service', 'in-cage']
    const command = ['unshare', ...WALLS, '/bin/sh', '-c', INSIDE, 'sh', ...words]
    const { BATON_NODE } = process.env
    const report = await performBy(command, what, BATON_NODE === undefined ? {} : { BATON_NODE })
    return ended({ ...judge(report, tags), rows: report.rows, copyMs, migrationMs: report.candidate?.ms ?? null })
  } catch (cause) {
    if (cause instanceof BatonError && cause.code === 'verify_failed') throw cause
    return ended({ reason: reasonOf(cause) })
  }
}
