// `npm run apps [-- NAME… --systemd --image]`: all six applications (or those named), from the packed package, on this host and, where
// it is said, on one with systemd and in containers. `npm run apps -- --real [NAME…]`: services of others, with clients of their own
// kind, and a table at the end. `-- --sockets`: those whose clients hold WebSockets, and what these do. `-- --npm [NAME…]`: packages by their
// recipes; `--npm --systemd`: ten of them on hosts with systemd, and a table at the end. Exit code 1 where a promise was broken.

import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../../deploy/make/place.ts'
import { reasonOf } from '../../agent/words.ts'
import { packedKit } from '../pack/main.ts'
import { adopt, APPS, faultsOf } from './adopt.ts'
import { faultsFromNpm, fromNpm, noteTried } from './npm.ts'
import { faultsHosted, HOSTED, hostedFromNpm, tableHosted } from './npm-systemd.ts'
import { PLACES } from './places.ts'
import { adoptReal, faultsOfReal, type Service, SERVICES, SOCKET_SERVICES, tableOf } from './real/adopt.ts'

const wanted = process.argv.slice(2).filter((word) => !word.startsWith('--'))
const isWanted = (name: string) => wanted.length === 0 || wanted.includes(name)
const kit = await packedKit()
if (process.argv.includes('--real')) await real(kit, SERVICES, true)
else if (process.argv.includes('--sockets')) await real(kit, SOCKET_SERVICES, false)
else if (process.argv.includes('--npm') && process.argv.includes('--systemd')) await hosted()
else if (process.argv.includes('--npm')) await npm(kit)
else await ours(kit)

async function ours(packed: string): Promise<void> {
  const places = PLACES.filter((place) => process.argv.includes(`--${place}`))
  for (const app of APPS.filter(isWanted)) {
    const adopted = await adopt(app, packed, { say: sayOf(app), places })
    tell(adopted, faultsOf(adopted))
  }
}

/** Packages by their recipes; without a name, all. */
async function npm(packed: string): Promise<void> {
  const names = (await readdir(join(PROJECT, 'deploy/npm/recipes'))).map((name) => name.replace(/\.json$/, ''))
  await each(wanted.length > 0 ? wanted : names, faultsFromNpm, async (name) => {
    const adopted = await fromNpm(name, packed, sayOf(name))
    if (faultsFromNpm(adopted).length === 0) await noteTried(adopted)
    return adopted
  })
}

/** Packages as units of hosts with systemd; without a name, those that have clients of their own. */
async function hosted(): Promise<void> {
  const names = wanted.length > 0 ? wanted : HOSTED
  const all = await each(names, faultsHosted, (name) => hostedFromNpm(name, sayOf(name)))
  process.stdout.write(`\n${tableHosted(all)}`)
}

async function real(packed: string, services: readonly Service[], isMeasured: boolean): Promise<void> {
  const all = await each(services.filter(isWanted), faultsOfReal, (service) =>
    adoptReal(service, packed, { say: sayOf(service), isMeasured }),
  )
  process.stdout.write(`\n${tableOf(all)}`)
}

/** One after the other. If one fails, the others are tried all the same. */
async function each<Name extends string, T extends object>(
  names: readonly Name[],
  faultsIn: (one: T) => string[],
  act: (name: Name) => Promise<T>,
): Promise<T[]> {
  const all: T[] = []
  for (const name of names) {
    try {
      const one = await act(name)
      tell(one, faultsIn(one))
      all.push(one)
    } catch (cause) {
      tell({ name }, [`${name}: ${reasonOf(cause)}`])
    }
  }
  return all
}

function tell(adopted: object, faults: string[]): void {
  process.stdout.write(`${JSON.stringify({ ...adopted, faults })}\n`)
  if (faults.length > 0) process.exitCode = 1
}

function sayOf(name: string): (line: string) => void {
  return (line) => void process.stderr.write(`${name}: ${line}\n`)
}
