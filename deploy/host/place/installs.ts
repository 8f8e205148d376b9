// All installs of this host, or of one user, by their receipts alone.
// Must hold: root believes only receipts, and later runs only programs, that nobody else can change.

import { lstat, readdir, realpath } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import {
  isNamedBy,
  readReceiptBeside,
  readSystemReceipt,
  type Receipt,
  receiptPath,
  SYSTEM_DIRECTORY,
} from '../../../agent/install.ts'
import { BatonError, isService, reasonOf } from '../../../agent/words.ts'
import { assertTrusted } from '../../lib/trusted.ts'
import type { Scope } from './choices.ts'
import { isRoot } from './identity.ts'
import { layoutOfReceipt, type Person, userPlaces } from './layout.ts'

/** `program`: runs its commands. `why`: the receipt, or the program, does not count. */
export type FoundInstall = { service: string } & ({ receipt: Receipt; program: string } | { why: string })

/** Sorted by name. */
export async function installsOf(scope: Scope, person: Person): Promise<FoundInstall[]> {
  const found = scope === 'system' ? await ofHost(person) : await ofUser(person)
  return found.toSorted((one, other) => (one.service < other.service ? -1 : 1))
}

async function ofHost(person: Person): Promise<FoundInstall[]> {
  const folders = await namesIn(SYSTEM_DIRECTORY)
  const found = await Promise.all(folders.map((service) => judged(service, () => readSystemReceipt(service), person)))
  return found.filter((one) => one !== null)
}

/** Also one whose executable is elsewhere (`--prefix`): the user's command is a link that leads there. */
async function ofUser(person: Person): Promise<FoundInstall[]> {
  const { directory, commands } = userPlaces('service', person)
  const shares = dirname(directory)
  const found = new Map<string, FoundInstall>()
  const look = async (service: string, executable: string) => {
    if (found.has(executable)) return
    const one = await judged(service, () => ofOneUser(executable), person)
    if (one !== null) found.set(executable, one)
  }
  for (const service of await namesIn(shares)) await look(service, join(shares, service, service))
  for (const service of await namesIn(commands)) {
    const executable = await realpath(join(commands, service)).catch(() => null)
    if (executable !== null) await look(service, executable)
  }
  return [...found.values()]
}

async function ofOneUser(executable: string): Promise<Receipt | null> {
  const path = receiptPath(executable)
  const at = await lstat(path).catch(() => null)
  if (at === null) return null
  if (isRoot())
    await assertTrusted(path, 'the record of the install', 'run this command as the user that owns the install')
  else if (at.uid !== process.getuid?.())
    throw new BatonError('refused', `${path} belongs to user id ${at.uid}, not to the user running this command`)
  const receipt = await readReceiptBeside(executable)
  return receipt?.scope === 'user' && (await isNamedBy(receipt, executable)) ? receipt : null
}

/** Null: there is no receipt. */
async function judged(
  service: string,
  read: () => Promise<Receipt | null>,
  person: Person,
): Promise<FoundInstall | null> {
  try {
    const receipt = await read()
    if (receipt === null) return null
    if (receipt.service !== service)
      throw new BatonError('refused', `it belongs to ${JSON.stringify(receipt.service.slice(0, 40))}`)
    const { program } = layoutOfReceipt(receipt, person)
    if (isRoot()) await assertTrusted(program, 'its program', 'run `install.sh` again')
    const { node } = receipt
    if (isRoot() && node !== undefined) await assertTrusted(node, 'its Node', 'run `install.sh` again')
    return { service, receipt, program }
  } catch (cause) {
    return { service, why: reasonOf(cause) }
  }
}

async function namesIn(folder: string): Promise<string[]> {
  return (await readdir(folder).catch(() => [])).filter(isService)
}
