// Gathers the facts that a plan is made from, before anything is changed. Reads only; the service's user reads the service's files.

import { lstat, readFile, readlink } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import {
  exists,
  installedTag,
  readReceiptBeside,
  readSystemReceipt,
  type Receipt,
  sha256OfFile,
  rehearsalFolder,
} from '../../../agent/install.ts'
import { BatonError } from '../../../agent/words.ts'
import type { OpenSide } from '../boundary/open.ts'
import { supervisorOf } from '../boundary/open.ts'
import { run } from '../../lib/shell.ts'
import type { Said } from '../place/choices.ts'
import { findId, isRoot } from '../place/identity.ts'
import type { Layout } from '../place/layout.ts'
import { assertTrusted, trustIn } from '../../lib/trusted.ts'
import { cagePathUnit, cageUnit, hasCage } from '../place/cage.ts'
import { MARK, rescueUnit, serviceUnit } from '../place/unit.ts'
import type { Survey } from '../service/survey.ts'
import { systemctlFor } from '../../lib/systemctl.ts'
import { type Facts, foundAs, type Found } from './found.ts'
import { ownFile } from '../place/own.ts'
import { isMadeFor } from './user.ts'

const NOTHING: Survey = {
  directory: 'absent',
  stateDirectory: 'absent',
  executable: false,
  installed: null,
  besideNames: null,
  ours: [],
  written: null,
}

/** The receipt that counts for an install of this layout, or null. Throws refused. */
export async function receiptOf(layout: Layout): Promise<Receipt | null> {
  if (layout.scope === 'system') return await readSystemReceipt(layout.service)
  // if HOME is another user's, root must not believe what that user has written
  if (isRoot() && (await exists(layout.receipt)))
    await assertTrusted(layout.receipt, 'the receipt', 'run this command as the user that owns the install')
  const receipt = await readReceiptBeside(layout.executable)
  if (receipt === null || receipt.scope === 'user') return receipt
  throw new BatonError('refused', `expected a per-user install at ${layout.receipt}, found a system-wide one`, {
    hint: 'for the system-wide install, run the command as root, without --user',
  })
}

/** `open` null if the service's user does not exist yet. */
export async function gatherFacts(
  layout: Layout,
  receipt: Receipt | null,
  withUnit: boolean,
  open: OpenSide | null,
): Promise<Facts> {
  const root = isRoot() && layout.scope === 'system'
  const { service, executable, stateDirectory } = layout
  const found =
    open === null ? await surveyByRoot(layout) : await open.side.survey({ service, executable, stateDirectory })
  const isEarlier = found.besideNames === service && layout.scope === 'system'
  const known = receipt !== null || isEarlier
  const userExists = (await findId(layout.user)) !== null
  return {
    root,
    userExists,
    userIsOurs: !userExists || (await isMadeFor(service, layout.user)),
    directoryReady: found.directory === 'ours',
    stateReady: found.stateDirectory === 'ours',
    configDirectoryExists: await exists(layout.configDirectory),
    configExists: await exists(layout.configPath),
    receipt,
    executable: !found.executable ? 'absent' : known ? 'installed' : 'foreign',
    installed: found.installed,
    earlier: isEarlier ? found.ours.filter((path) => path.endsWith('/receipt.json')) : [],
    command: await foundLink(layout),
    ...(await foundProgram(layout)),
    unit: foundAs(await textAt(layout.unit), serviceUnit(layout)),
    rescueUnit: foundAs(await textAt(layout.rescueUnit), rescueUnit(layout)),
    ...(await foundCage(layout, withUnit)),
    enabled: withUnit && (await isEnabled(layout.scope, `${service}.service`)),
    active: receipt !== null && open !== null && (await supervisorOf(receipt, open.side).state()).active,
    ours: found.ours,
    written: found.written,
    now: new Date(),
  }
}

/** As long as the service's user does not exist, nothing belongs to it: what exists is root's or another user's. */
async function surveyByRoot({ directory, executable }: Layout): Promise<Survey> {
  const trust = await trustIn(directory)
  if (!trust.trusted || trust.found === null) return NOTHING
  return { ...NOTHING, executable: await exists(executable) }
}

async function foundLink({ command, program, executable }: Layout): Promise<Found> {
  const link = await readlink(command).catch(() => null)
  if (link === null) return (await exists(command)) ? 'foreign' : 'absent'
  const target = resolve(dirname(command), link) // npm's links are relative
  if (target === program) return 'same'
  // an earlier installer linked to the executable; an uninstall by hand leaves a dangling link behind
  return target === executable || !(await exists(target)) ? 'ours' : 'foreign'
}

/** Root's own copy of the command. It is run, to print its tag, only if nobody but root could have put it there. */
async function foundProgram({ program, executable }: Layout): Promise<Pick<Facts, 'program' | 'programTag'>> {
  if (program === executable) return { program: 'same', programTag: null }
  const trust = await trustIn(program)
  if (trust.trusted && trust.found === null) return { program: 'absent', programTag: null }
  if (!trust.trusted || trust.found?.isFile() !== true) return { program: 'foreign', programTag: null }
  const programTag = await installedTag(program).catch(() => null)
  const same = program === ownFile() || (await isCopyOf(program, ownFile()))
  return { program: same ? 'same' : 'ours', programTag }
}

async function isCopyOf(one: string, other: string): Promise<boolean> {
  const [{ size: first }, { size: second }] = await Promise.all([lstat(one), lstat(other)])
  return first === second && (await sha256OfFile(one)) === (await sha256OfFile(other))
}

type CageFacts = Pick<Facts, 'cageUnit' | 'cagePathUnit' | 'cageReady' | 'cageEnabled' | 'systemdVersion'>

async function foundCage(layout: Layout, withUnit: boolean): Promise<CageFacts> {
  if (!hasCage(layout) || !withUnit)
    return { cageUnit: 'same', cagePathUnit: 'same', cageReady: true, cageEnabled: true, systemdVersion: 0 }
  const systemdVersion = await versionOfSystemd()
  const folder = await lstat(rehearsalFolder(layout.stateDirectory)).catch(() => null)
  const owner = await findId(layout.user)
  return {
    systemdVersion,
    cageUnit: foundAs(await textAt(layout.cageUnit), cageUnit(layout, systemdVersion)),
    cagePathUnit: foundAs(await textAt(layout.cagePathUnit), cagePathUnit(layout)),
    cageReady: folder?.isDirectory() === true && folder.uid === owner?.uid,
    cageEnabled: await isEnabled('system', `${layout.service}-trial.path`),
  }
}

async function versionOfSystemd(): Promise<number> {
  const { stdout } = await run(['systemctl', '--version'], { allowFailure: true })
  return Number(/^systemd (\d+)/.exec(stdout)?.[1] ?? 0)
}

async function isEnabled(scope: Layout['scope'], unit: string): Promise<boolean> {
  const { stdout } = await run([...systemctlFor(scope), 'is-enabled', unit], { allowFailure: true })
  return stdout.trim() === 'enabled'
}

async function textAt(path: string): Promise<string | null> {
  return await readFile(path, 'utf8').catch(() => null)
}

/**
 * The choices of an earlier installer for the whole host, read from the unit that root wrote then. Nobody trusts its receipt: that lay
 * beside the executable, where the service's user can write anything.
 */
export async function earlierChoices(service: string): Promise<Said> {
  const path = join('/etc/systemd/system', `${service}.service`)
  const trust = await trustIn(path)
  if (!trust.trusted || trust.found?.isFile() !== true) return {}
  return choicesIn(await readFile(path, 'utf8'), service)
}

/** Pure. Empty if the installer did not write the unit. */
export function choicesIn(unit: string, service: string): Said {
  if (!unit.startsWith(MARK)) return {}
  const value = (name: string) => new RegExp(`^${name}=(.*)$`, 'm').exec(unit)?.[1]
  const executable = /^(\/\S+) serve --config \/\S+$/.exec(value('ExecStart') ?? '')?.[1]
  const stateDirectory = value('WorkingDirectory')
  const user = value('User')
  return {
    ...(executable === undefined || dirname(executable) === `/opt/${service}` ? {} : { prefix: dirname(executable) }),
    ...(stateDirectory === undefined || stateDirectory === `/var/lib/${service}`
      ? {}
      : { 'state-dir': stateDirectory }),
    ...(user === undefined || user === service ? {} : { 'run-as': user }),
  }
}
