// The root that is compiled into an executable: all trust in a feed begins there.
// Must hold: a build refuses a root from which no host could verify the feed.

import { BatonError } from '../../words/errors.ts'
import type { Anchor } from '../../words/release.ts'

/** What is wrong with a root for a build of `service`; empty if nothing is. Loads the library that checks signatures. */
export async function faultsOfRoot(root: string, service: string, now: Date): Promise<string[]> {
  const { formFault, signatureFault } = await import('./form.ts')
  const { canonicalize, verifyRoot } = await import('./tuf.ts')
  const bytes = Buffer.from(root.trimEnd())
  const form = formFault('root', bytes, canonicalize)
  if (form !== null) return [form]
  const { signed } = JSON.parse(root) as { signed: Record<string, unknown> & { expires: string; version: number } }
  const faults: string[] = []
  const signature = signatureFault('root', bytes, [bytes], canonicalize)
  if (signature !== null) faults.push(signature)
  else {
    try {
      verifyRoot(bytes)
    } catch (error) {
      faults.push(`it is not signed by its own keys: ${error instanceof Error ? error.message : String(error)}`)
    }
  }
  if (Date.parse(signed.expires) <= now.getTime()) faults.push(`it expired on ${signed.expires}`)
  const named = signed[SERVICE_MEMBER]
  if (named !== service) faults.push(`expected a root for \`${service}\`, got one for \`${String(named)}\``)
  return faults
}

/** The member of a root that names the service, so that one maintainer's keys for two services are never mixed up. */
export const SERVICE_MEMBER = 'x-baton-service'

/** Throws clock_wrong if this host's clock is earlier than the time at which the executable was built. */
export function assertClock({ builtAt }: Anchor, now: Date): void {
  const built = builtAt === null ? Number.NaN : Date.parse(builtAt)
  if (Number.isNaN(built) || now.getTime() >= built) return
  throw new BatonError(
    'clock_wrong',
    `this host's clock says ${now.toISOString()}, but the running executable was built at ${builtAt}`,
    { hint: 'set the clock or start a time service: expiry dates cannot be checked while the clock is wrong' },
  )
}
