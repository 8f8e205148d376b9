// Checks the installed service: that its executable and its backup run, that its configuration can be read and keeps its secret, that
// its port is free, and which kind of switch an update makes. Runs as the service's user.

import { stat } from 'node:fs/promises'
import { exists, installedTag, ownCommand, type Receipt, rulesOf } from '../../../agent/install.ts'
import {
  BatonError,
  durationText,
  expectedPause,
  type LastPause,
  lastPause,
  type NextSwitch,
  PASSWORD_USUAL_MIN,
  pauseFault,
  reasonOf,
} from '../../../agent/words.ts'
import { onlyOneCanHave } from '../../lib/only-one.ts'
import { listensEverywhere } from '../../lib/open-files.ts'
import { BORNE, isBorne, nextPause } from '../../lib/switch.ts'
import { findId } from '../place/identity.ts'
import { isFree } from '../place/port.ts'
import { formatCrashes } from '../supervisor/crashes.ts'
import { failureOf } from '../service/advice.ts'
import { connect } from '../service/client.ts'
import { type Access, readAccess } from '../service/configuration.ts'
import type { Outside } from '../service/outside.ts'
import { problem, type Finding, ok, type Wrong, type Subject, unknownSetting, warning, wrongOf } from './finding.ts'

export async function checkExecutable({ receipt }: Subject): Promise<Finding[]> {
  const install = `\`${ownCommand('install')}\``
  if (receipt === null)
    return [warning('executable', 'the service is not installed here yet', `run ${install} to install it`)]
  const { executable, service, user } = receipt
  const backup = `${executable}.backup`
  const tag = await installedTag(executable).catch((cause: unknown) => reasonOf(cause))
  const backupTag = await installedTag(backup).catch((cause: unknown) => cause as Error)
  const [owner, wanted] = [await stat(executable).catch(() => null), await findId(user)]
  const rows: Wrong[] = [
    /^v[0-9]/.test(tag)
      ? ok('executable', `${executable} is ${service} ${tag}`)
      : problem(
          'executable',
          `${executable} cannot be run: ${tag}`,
          `run ${install} again, or \`${ownCommand('rollback')}\``,
          'service_down',
        ),
    wanted === null &&
      problem('user', `${service} runs as user ${user}, but this host has no such user`, `run ${install} again`),
    wanted !== null &&
      owner !== null &&
      owner.uid !== wanted.uid &&
      warning('owner', `${executable} does not belong to ${user}`, `chown ${user} ${executable}`),
    typeof backupTag === 'string'
      ? await backupRow(receipt, backup, backupTag)
      : (await exists(backup)) &&
        warning(
          'backup',
          `${backup} cannot be run: ${reasonOf(backupTag)}`,
          `run \`${ownCommand('rollback TAG')}\` to download and install a release`,
        ),
  ]
  return wrongOf(rows, null)
}

async function backupRow(receipt: Receipt, backup: string, tag: string): Promise<Wrong> {
  const failure = await failureOf(receipt, tag).catch(() => null) // what keeps the record from being read is another check's finding
  if (failure === null) return ok('backup', `${backup} is ${tag}`)
  return warning(
    'backup',
    `${backup} is ${tag}, which failed here at ${failure.at}: ${failure.reason}`,
    `to have a way back, choose a release that works: \`${ownCommand('releases')}\` lists them, \`${ownCommand('rollback TAG')}\` installs one`,
  )
}

export async function checkConfiguration({ receipt }: Subject, outside: Outside): Promise<Finding[]> {
  if (receipt === null) return []
  const { configPath } = receipt
  const { address, token, unknown, faults } = await readAccess(configPath)
  const { mode } = await stat(configPath)
  return wrongOf(
    [
      (mode & 0o077) !== 0 &&
        warning(
          'configuration',
          `other users can access ${configPath}, where the password is kept`,
          `chmod 600 ${configPath}`,
        ),
      token === null &&
        problem(
          'configuration',
          `no dashboard.password is set in ${configPath}: the update endpoints are closed`,
          'set a password and restart the service',
        ),
      token !== null &&
        token.length < PASSWORD_USUAL_MIN &&
        warning(
          'configuration',
          `dashboard.password has fewer than ${PASSWORD_USUAL_MIN} characters: it can be guessed`,
          'choose a longer password and restart the service',
        ),
      ...unknown.map(({ name, expected }) => unknownSetting(name, expected, configPath)),
      ...faults.map((fault) =>
        problem('configuration', `${configPath}: ${fault}`, 'correct this, or the service will not start next time'),
      ),
      ...(await rulesOf({ receipt, stateDirectory: receipt.stateDirectory })).faults.map((fault) =>
        warning('automatic', fault, 'correct this; the change takes effect at once'),
      ),
      await portRow(receipt, address, outside),
    ],
    ok('configuration', configPath),
  )
}

async function portRow(receipt: Receipt, address: Access['address'], outside: Outside): Promise<Wrong> {
  if (!('port' in address)) return null
  const { host, port, isEverywhere } = address
  const { active } = await outside.supervisor(receipt).state()
  if (!active && !(await isFree(host, port))) {
    const message = `the service is not running, and another program is listening on ${host}:${port}`
    return problem('port', message, `stop that program, or change \`listen\` in ${receipt.configPath}`)
  }
  if (!active || isEverywhere || !(await listensEverywhere(port))) return null
  return warning(
    'port',
    `the configuration specifies ${host}, but port ${port} is open on every address of this host`,
    'ask the author to pass the host (HOST in the environment) to `listen`; for a service from npm, deploy it again with its package’s argument for the host, such as `-- --host {host}`; until then, block the port with a firewall',
  )
}

/** Says nothing of a service that runs. */
export async function checkCrashes({ receipt }: Subject, outside: Outside): Promise<Finding[]> {
  if (receipt === null) return []
  const supervisor = outside.supervisor(receipt)
  const { word, crashes } = await supervisor.state()
  if (crashes === null || (word !== 'failed' && !crashes.isLooping)) return []
  return [problem('service', formatCrashes(crashes), `for details, see \`${supervisor.logCommand}\``, 'service_down')]
}

export async function checkSwitch({ receipt }: Subject): Promise<Finding[]> {
  if (receipt === null) return []
  const client = connect(await readAccess(receipt.configPath))
  // a service that refuses to answer for another reason is another check's finding
  const status = await client.status().catch((cause: unknown) => (isRefused(cause) ? cause : null))
  if (isRefused(status)) return [problem('switch', status.message, status.hint)]
  const next = status?.switch
  if (status === null || next === undefined) {
    const why = status === null ? 'the service does not answer' : `${status.instance.version} does not report it`
    return [ok('switch', `the switch order is not known: ${why}`)]
  }
  return [
    next.order === 'start-first'
      ? besideEachOther(await onlyOneCanHave(status.instance.pid))
      : alone(next, lastPause(status.history)),
  ]
}

const isRefused = (value: unknown): value is BatonError => value instanceof BatonError && value.code === 'unauthorized'

export function alone({ maxPauseMs }: Pick<NextSwitch, 'maxPauseMs'>, last: LastPause | null): Finding {
  if (last === null)
    return ok(
      'switch',
      `stop-first; how long clients wait is not known until the first switch; after that, an update that would make them wait longer than \`maxPause\` (${durationText(maxPauseMs)}) is refused`,
    )
  const said = `stop-first; ${nextPause(last.pauseMs)}; \`maxPause\` allows ${durationText(maxPauseMs)}`
  if (pauseFault(expectedPause(last, null), maxPauseMs) !== null) {
    return problem(
      'switch',
      `${said}, so every update would be refused`,
      'raise `update.maxPause` in the configuration and restart the service; or run `rollback`, which also measures the wait again; or, when there is no traffic, stop the service, upgrade it and start it',
    )
  }
  if (isBorne(last.pauseMs)) return ok('switch', `${said}; ${BORNE}`)
  return warning(
    'switch',
    `${said}; ${BORNE}`,
    'speed up the application’s startup and `onStop`, or update when there is little traffic',
  )
}

/** Pure. `against`: what only one process can have. */
export function besideEachOther(against: readonly string[]): Finding {
  if (against.length === 0)
    return ok('switch', 'start-first: during a switch, two processes of the service run at once, and no client waits')
  return warning(
    'switch',
    `start-first, but only one process can hold ${against.join(', ')}`,
    'ask the author to set `"order": "stop-first"` in baton.config.json',
  )
}
