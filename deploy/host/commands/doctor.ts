// `doctor`: says what would fail, before it does; also before a first install, and in a container.

import { stat } from 'node:fs/promises'
import { installedTag, ownCommand } from '../../../agent/install.ts'
import { EXIT, MEANINGS } from '../../../agent/words.ts'
import { openSide } from '../boundary/open.ts'
import { examineInside } from '../doctor/container.ts'
import { HOST_CHECKS, runChecks } from '../doctor/doctor.ts'
import { type Finding, ok, type Subject, warning, worstOf } from '../doctor/finding.ts'
import { checkGiven } from '../doctor/places.ts'
import { choose, fromEnvironment } from '../place/choices.ts'
import { findId, isRoot } from '../place/identity.ts'
import { layoutOf } from '../place/layout.ts'
import { wayInContainer } from './container.ts'
import { type Context, deadlineOf, defaultsFrom, findMine, ownerOf, personOf } from './context.ts'
import { ownFile, ownUnpackedBytes } from '../place/own.ts'

export async function doctor(context: Context): Promise<number> {
  const { service, tag, environment, report } = context
  const way = wayInContainer(service, environment)
  const findings =
    way === null
      ? await examineHost(context)
      : await examineInside({ service, tag }, environment, `${way.why}; on the container's host, run ${way.command}`)
  const worst = worstOf(findings)
  const exit = worst === null ? EXIT.done : MEANINGS[worst.code].exit
  return report.result({ findings, exit }, findings.flatMap(linesOf))
}

async function examineHost(context: Context): Promise<Finding[]> {
  const { service, environment, flags, report } = context
  const { said } = fromEnvironment(service, environment)
  const located = await findMine(context)
  const receipt = located?.receipt ?? null
  const remembered = receipt === null ? {} : { scope: receipt.scope, feed: receipt.feed }
  const { choices } = choose(flags.said, said, remembered, defaultsFrom(environment))
  const layout = located?.layout ?? layoutOf(service, choices, personOf(environment))
  const withUnit = receipt === null ? choices.service : receipt.supervisor !== 'none'
  const isRoots = isRoot() && layout.scope === 'system'
  const { findings: places, given } = isRoots ? await checkGiven(layout) : { findings: [], given: [] }
  const subject: Subject = {
    layout,
    receipt,
    feed: choices.feed === '' ? null : choices.feed,
    executableBytes: (await stat(ownFile())).size,
    unpackedBytes: ownUnpackedBytes(),
    withUnit,
    given,
  }
  const findings: Finding[] = [...places]
  const tag =
    receipt === null || layout.program === layout.executable
      ? null
      : await installedTag(layout.program).catch(() => null)
  if (tag !== null)
    findings.push(ok('command', `${layout.command} is a copy of ${tag}; \`${ownCommand('install TAG')}\` renews it`))
  if (layout.scope === 'system' && (await findId(layout.user)) === null) {
    findings.push(
      warning('user', `the user ${layout.user} does not exist yet`, `\`${ownCommand('install')}\` creates it`),
    )
  } else {
    await using open = await openSide(
      ownerOf(layout, choices.feed, withUnit),
      report,
      environment,
      deadlineOf(context, false),
    )
    findings.push(...(await runChecks(subject, HOST_CHECKS)))
    // a person who is not root sees the service's places with other rights than the service has
    if (isRoots || layout.scope === 'user') findings.push(...(await open.side.examine({ subject, checks: 'all' })))
    if (open.confined === false) findings.push(unconfined(layout.user))
  }
  return findings
}

function unconfined(user: string): Finding {
  const message = `processes that root’s commands start as ${user} are not confined: confinement requires systemd`
  return warning(
    'confinement',
    message,
    `a process that leaves its process group outlives the command; \`ps -u ${user}\` shows it`,
  )
}

function linesOf({ level, check, message, hint }: Finding): string[] {
  const line = `${level.padEnd(8)} ${check.padEnd(14)} ${message}`
  return hint === null || level === 'ok' ? [line] : [line, `         ${' '.repeat(14)} hint: ${hint}`]
}
