// The choices of an earlier installer for the whole host, read from the unit that root wrote then. Nobody trusts its receipt: that lay
// beside the executable, where the service's user can write anything.

import { readFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { Said } from './choices.ts'
import { trustIn } from '../../lib/trusted.ts'
import { MARK } from './unit.ts'

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
