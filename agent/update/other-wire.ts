// Whether the release that is to replace this process understands this process in a switch, and is understood. It is asked before the swap,
// when nothing has changed.

import type { ManagedInstall } from '../disk/managed-install.ts'
import { ownCommand } from './own-command.ts'
import { blameless } from '../words/blame.ts'
import { WIRES } from '../words/wire.ts'
import { installed } from './version.ts'

/** Throws refused if it does not; never in a command, which stops and starts the service. `words`: the command that would do it then. */
export async function refuseOtherWire(
  { serves, current }: Pick<ManagedInstall, 'serves' | 'current'>,
  executable: string,
  tag: string,
  words: string,
): Promise<void> {
  if (serves) await refuseUnlike(WIRES, current, executable, tag, words)
}

/** In a command, for a dry run: throws what the service would. A release that does not say what it speaks does not refuse any. */
export async function foreseeOtherWire(
  { places, current }: Pick<ManagedInstall, 'places' | 'current'>,
  executable: string,
  tag: string,
  words: string,
): Promise<void> {
  const own = (await installed(places.executable)).wires
  if (own !== null) await refuseUnlike(own, current, executable, tag, words)
}

async function refuseUnlike(own: readonly number[], current: string, executable: string, tag: string, words: string) {
  const why = whyNoSwitch(own, (await installed(executable)).wires)
  if (why === null) return
  throw blameless('refused', `${tag} cannot take over from ${current} without stopping the service: ${tag} ${why}`, {
    hint: `nothing has changed; run \`${ownCommand('stop')}\`, then \`${ownCommand(words)}\`, which starts the service again`,
  })
}

/** Why two releases cannot switch, what follows the new one's tag; null: they can. `theirs` null: it does not say. Pure. */
export function whyNoSwitch(own: readonly number[], theirs: readonly number[] | null): string | null {
  if (theirs === null) return 'was built with an older version of Baton, whose switch protocol is no longer supported'
  if (theirs.some((one) => own.includes(one))) return null
  const list = (all: readonly number[]) => (all.length === 0 ? 'none' : all.join(', '))
  return `supports different switch protocol versions (${list(theirs)}) than the running release (${list(own)})`
}
