// Says what a host would say of a feed: it reads the feed with the agent's own client, from the root that hosts were built with.

import { readFile } from 'node:fs/promises'
import { openFeedWith, SERVICE_MEMBER } from '../../agent/publish.ts'
import { asBatonError, BatonError, latestFor, MEANINGS, type Release, type TrustReport } from '../../agent/words.ts'
import { temporaryFolder } from '../lib/trusted.ts'

export interface Verified {
  feed: string
  root: { version: number; service: string }
  latest: string | null
  image: string | null
  trust: TrustReport
  passedOver: { tag: string; why: string }[]
  problem: { code: string; message: string; hint: string | null } | null
  exit: number
}

/** `rootFile`: path of the root.json that hosts have compiled in. */
export async function verifyFeed(
  feed: string,
  rootFile: string,
  platform: { os: string; arch: string },
  environment: NodeJS.ProcessEnv,
): Promise<Verified> {
  const root = await readFile(rootFile, 'utf8').catch((cause: unknown) => {
    const hint = 'pass the root.json that the release was built with: --root FILE'
    throw new BatonError('refused', `cannot read the trust root file ${rootFile}`, { cause, hint })
  })
  const { signed } = JSON.parse(root) as { signed: { version: number; [SERVICE_MEMBER]: string } }
  const service = signed[SERVICE_MEMBER]
  await using state = await temporaryFolder('baton-verify-')
  const passedOver: Verified['passedOver'] = []
  await using open = openFeedWith(feed, {
    target: { service, ...platform },
    environment,
    trust: { root, builtAt: null },
    stateDirectory: state.path,
    onPassedOver: (tag, why) => void passedOver.push({ tag, why }),
  })
  let latest: Release | null = null
  let problem: BatonError | null = null
  try {
    const newest = await open.latest(() => false)
    latest = latestFor(newest, null)
    problem = newest.problem
  } catch (error) {
    problem = asBatonError(error, 'check_failed', `asking ${feed}`)
  }
  const image = latest?.image ?? null
  return {
    feed,
    root: { version: signed.version, service },
    latest: latest?.tag ?? null,
    image: image === null ? null : `${image.repository}@${image.digest}`,
    trust: await open.trust(),
    passedOver,
    problem: problem === null ? null : { code: problem.code, message: problem.message, hint: problem.hint },
    exit: problem === null ? 0 : MEANINGS[problem.code].exit,
  }
}
