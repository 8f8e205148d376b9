// `--restore-state NAME`: a copy of the data takes the place of the container's, which go aside. The container's own release does
// it at its start (own-data.ts), so it is restarted once.
// Must hold: nothing is removed; a kill at any point leaves the container running or being started by the engine, on one of the two.

import { posix } from 'node:path'
import { BatonError, untilWell } from '../../agent/words.ts'
import { newerCopy } from '../lib/newer-copy.ts'
import { check } from './health.ts'
import { unfinishedAt } from './job.ts'
import { again } from './moves.ts'
import { orderRestore, owesStill, paidIn, settleData } from './own-data.ts'
import { containerStatus } from './recreate.ts'
import type { ContainerEnd } from './report.ts'
import type { ContainerRequest, Tools } from './request.ts'
import { surveyContainer } from './survey.ts'
import { refuseBusy } from './switcher.ts'
import { versionOf } from './target.ts'

interface RestoreRequest extends Pick<ContainerRequest, 'allowIrreversible' | 'healthTimeoutMs'> {
  dryRun: boolean
}

/** Resolves to the status then; with `dryRun` it only looks. Throws BatonError refused, also if the copy is a newer release's and nobody allows that; not_found; locked; service_down if the container is not well with that copy. */
export async function restoreState(
  name: string,
  copy: string,
  { healthTimeoutMs, dryRun, allowIrreversible }: RestoreRequest,
  { engine, report }: Pick<Tools, 'engine' | 'report'>,
): Promise<ContainerEnd> {
  const site = await surveyContainer(name, engine)
  refuseBusy(site.switcher, name)
  const { main } = site
  if (main === null || unfinishedAt(site) !== null || !main.State.Running)
    throw new BatonError('refused', `expected \`${name}\` to be running, with no deployment in progress`, {
      hint: `see \`--status\`; to finish a deployment that was cut short, run it again`,
    })
  if (main.State.Restarting === true)
    throw new BatonError('refused', `\`${name}\` keeps exiting, so it cannot restore a copy itself`, {
      hint: 'run `docker stop`, and put the copy in place by hand: see *Roll back* in the container guide',
    })
  const { tag } = await orderRestore(main, { copy, dryRun: true }, engine)
  const warning = newerCopy({ name: copy, tag }, versionOf(main))
  if (warning !== null) {
    if (!allowIrreversible) throw new BatonError('refused', warning, { hint: hintFor(tag) })
    await report({ event: 'warning', message: warning })
  }
  if (dryRun) {
    await report({ event: 'note', message: `\`${name}\` would be restarted, and would restore ${copy} as it starts` })
    return await containerStatus(name, { engine })
  }
  const { mostMs } = await orderRestore(main, { copy, dryRun: false }, engine)
  await report({ event: 'note', message: `\`${name}\` is being restarted and will restore ${copy} as it starts` })
  const seconds = main.Config['StopTimeout']
  await again(engine, () => engine.restart(main.Id, typeof seconds === 'number' ? seconds : null))
  const look = async () => {
    const { well, said } = await check(await engine.container(main.Id), null, engine)
    if (!well) return said
    // without a health check, it is well before it has taken the copy
    return mostMs > 0 && (await owesStill(main, engine)) ? 'the copy has not been restored yet' : null
  }
  const late = await untilWell(look, healthTimeoutMs + mostMs)
  if (late !== null)
    throw new BatonError(
      'service_down',
      `\`${name}\` is not healthy with the data from ${copy}${late === '' ? '' : `: ${late}`}`,
      {
        hint: `the previous data was set aside, and \`docker logs ${name}\` names it: run \`docker stop ${name}\` and put that data back by hand (see *Roll back* in the container guide)`,
      },
    )
  await settleData(main.Id, main.Id, engine)
  const paid = mostMs === 0 ? null : await paidIn(main, copy, engine)
  if (paid !== null && paid.error !== null)
    throw new BatonError('refused', `${paid.error}; \`${name}\` is running on its previous data`)
  if (paid !== null && paid.aside !== null)
    await report({
      event: 'note',
      message: `the previous data is in ${paid.aside}; \`--restore-state ${posix.basename(paid.aside)}\` restores it`,
    })
  return await containerStatus(name, { engine })
}

function hintFor(tag: string | null): string {
  return `deploy ${tag ?? 'that release'} first, then restore the copy; or pass \`--allow-irreversible\``
}
