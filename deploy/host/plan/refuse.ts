// Refuses an install that would touch another user's or program's files, or change a choice that only a new install can. Pure.

import { BatonError } from '../../../agent/words.ts'
import type { Found, InstallRequest } from './found.ts'

const ELSEWHERE = 'choose another location with `--prefix`'

/** Throws BatonError refused. */
export function refuseForeign(request: InstallRequest): void {
  refuseOtherInstall(request)
  const { layout, chosen, facts } = request
  if (facts.receipt === null && facts.executable === 'foreign') {
    throw refused(`the file ${layout.executable} is not part of an install`, `move it elsewhere, or ${ELSEWHERE}`)
  }
  const places: [Found, string][] = [
    [facts.command, layout.command],
    [facts.program, layout.program],
    [chosen.choices.service ? facts.unit : 'absent', layout.unit],
    [chosen.choices.service ? facts.rescueUnit : 'absent', layout.rescueUnit],
    [chosen.choices.service ? facts.cageUnit : 'absent', layout.cageUnit],
    [chosen.choices.service ? facts.cagePathUnit : 'absent', layout.cagePathUnit],
  ]
  for (const [found, path] of places) {
    if (found === 'foreign')
      throw refused(`${path} exists, but was not created by the installer`, 'move that file elsewhere')
  }
}

function refuseOtherInstall({ layout, chosen, facts: { receipt } }: InstallRequest): void {
  if (receipt === null) return
  const { service } = layout
  if (receipt.service !== service)
    throw refused(`${layout.directory} contains an install of ${receipt.service}, not of ${service}`, ELSEWHERE)
  if (receipt.executable !== layout.executable) {
    throw refused(
      `${service} is already installed at ${receipt.executable}; installing it again cannot move it to ${layout.executable}`,
      'uninstall it first (the state is kept), then install it in the new location',
    )
  }
  if (receipt.user !== layout.user) {
    throw refused(
      `${service} in ${layout.directory} was installed for the user ${receipt.user}, not for ${layout.user}`,
      `${ELSEWHERE}, or uninstall it as that user`,
    )
  }
  if (receipt.stateDirectory !== layout.stateDirectory) {
    throw refused(
      `the state directory of ${service} is ${receipt.stateDirectory}; installing it again cannot move it to ${layout.stateDirectory}`,
      'stop the service, uninstall, move the directory, then install with `--state-dir`',
    )
  }
  if ((receipt.supervisor === 'none') === chosen.choices.service) {
    throw refused(
      `${service} was installed ${receipt.supervisor === 'none' ? 'without' : 'with'} a systemd service, and installing it again cannot change that`,
      'uninstall it (the state is kept), then install it',
    )
  }
}

function refused(message: string, hint: string): BatonError {
  return new BatonError('refused', message, { hint })
}
