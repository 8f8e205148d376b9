// Checks that the executable and its backup run, and that the service's user owns the executable.

import { stat } from 'node:fs/promises'
import { exists, installedTag, ownCommand } from '../../../agent/install.ts'
import { reasonOf } from '../../../agent/words.ts'
import { findId } from '../place/identity.ts'
import { failure, type Finding, ok, type Subject, warning } from './finding.ts'

export async function checkExecutable({ receipt }: Subject): Promise<Finding[]> {
  if (receipt === null)
    return [warning('executable', 'there is no install here yet', `\`${ownCommand('install')}\` makes one`)]
  const findings: Finding[] = []
  const tag = await installedTag(receipt.executable).catch((cause: unknown) => reasonOf(cause))
  if (/^v[0-9]/.test(tag)) findings.push(ok('executable', `${receipt.executable} is ${receipt.service} ${tag}`))
  else
    findings.push(
      failure(
        'executable',
        `${receipt.executable} does not run: ${tag}`,
        `\`${ownCommand('install')}\` again, or \`${ownCommand('rollback')}\``,
        'service_down',
      ),
    )
  const owner = await stat(receipt.executable).catch(() => null)
  const user = await findId(receipt.user)
  if (user === null)
    findings.push(
      failure('user', `expected the user ${receipt.user}, found none`, `\`${ownCommand('install')}\` again`),
    )
  else if (owner !== null && owner.uid !== user.uid) {
    findings.push(
      warning(
        'owner',
        `${receipt.executable} does not belong to ${receipt.user}`,
        `chown ${receipt.user} ${receipt.executable}`,
      ),
    )
  }
  const backup = `${receipt.executable}.backup`
  const backupTag = await installedTag(backup).catch((cause: unknown) => cause as Error)
  if (typeof backupTag === 'string') findings.push(ok('backup', `${backup} is ${backupTag}`))
  else if (await exists(backup))
    findings.push(
      warning(
        'backup',
        `${backup} does not run: ${reasonOf(backupTag)}`,
        `\`${ownCommand('rollback <tag>')}\` fetches a release instead`,
      ),
    )
  return findings
}
