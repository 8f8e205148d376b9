// Reads verified metadata: which releases exist, which were yanked, and when the metadata expires. Pure.

import { DAY_MS } from '../../words/duration.ts'
import { isTag } from '../../words/release.ts'
import type { Tag } from '../../words/release.ts'
import { rolloutFrom, type RolloutStep } from '../../words/schedule.ts'
import type { TrustReport } from '../../words/state.ts'
import { ROLES } from './form.ts'
import type { Known } from './known.ts'
import { isObject } from '../../words/untrusted.ts'

export interface SignedRelease {
  tag: Tag
  /** size of its release.json; `sha256` is of the same file */
  sizeBytes: number
  sha256: string
  service: unknown
  /** why it must not be installed any more; null: it may be installed */
  yanked: string | null
  /** the container image of the release */
  image: { repository: string; digest: string } | null
  /** steps of a staged release: from when on which share of the hosts installs it by itself; null: all at once */
  rollout: RolloutStep[] | null
}

/** The steps if the signed ones are not valid: no host installs the release by itself. */
const NOBODY: RolloutStep[] = [{ at: '2000-01-01T00:00:00Z', percent: 0 }]

interface TargetFile {
  length: number
  hashes: { sha256: string }
  custom?: Record<string, unknown>
}

const WHY_MAX_CHARS = 200

/** The releases in the text of a verified targets file, in no order. */
export function releasesOf(targets: string): SignedRelease[] {
  const { signed } = JSON.parse(targets) as { signed: { targets: Record<string, TargetFile> } }
  return Object.entries(signed.targets).flatMap(([path, { length, hashes, custom = {} }]) => {
    const [tag = '', name] = path.split('/')
    if (!isTag(tag) || name !== 'release.json') return []
    const { service, yanked, image, rollout } = custom
    return [
      {
        tag,
        sizeBytes: length,
        sha256: hashes.sha256,
        service,
        yanked:
          typeof yanked === 'string' ? yanked.slice(0, WHY_MAX_CHARS) : yanked === undefined ? null : 'no reason given',
        image: imageOf(image),
        rollout: rollout === undefined ? null : (rolloutFrom(rollout) ?? NOBODY),
      },
    ]
  })
}

function imageOf(value: unknown): SignedRelease['image'] {
  if (!isObject(value)) return null
  const { repository, digest } = value
  if (typeof repository !== 'string' || typeof digest !== 'string' || !/^sha256:[0-9a-f]{64}$/.test(digest)) return null
  return /^[a-z0-9][a-z0-9._:/-]{0,254}$/.test(repository) ? { repository, digest } : null
}

/** `known` null: this executable was built without a root. */
export function trustReport(known: Known | null, now: Date): TrustReport {
  if (known === null) return { signed: false, metadata: [], yanked: [], warning: null }
  const { targets } = known.files
  const metadata: TrustReport['metadata'] = []
  const warnings: { at: number; warning: TrustReport['warning'] }[] = []
  for (const role of ROLES) {
    const file = known.files[role]
    if (file === undefined) continue
    const { signed } = JSON.parse(file) as { signed: { version: number; expires: string; [SIGNED_AT]?: string } }
    metadata.push({ role, version: signed.version, expiresAt: signed.expires })
    const at = Date.parse(signed.expires)
    const whole = at - Date.parse(signed[SIGNED_AT] ?? signed.expires)
    const left = at - now.getTime()
    const days = Math.floor(left / DAY_MS)
    const warn = (code: 'expiring' | 'expired', message: string) => warnings.push({ at, warning: { code, message } })
    if (left <= 0) warn('expired', `${role}.json expired on ${signed.expires}: no updates until it is signed again`)
    else if (left < whole / 3) warn('expiring', `${role}.json expires on ${signed.expires} (days left: ${days})`)
  }
  const [first] = warnings.toSorted((a, b) => a.at - b.at)
  return {
    signed: true,
    metadata,
    yanked: (targets === undefined ? [] : releasesOf(targets)).flatMap(({ tag, yanked }) =>
      yanked === null ? [] : [{ tag, why: yanked }],
    ),
    warning: first?.warning ?? null,
  }
}

/** The member of each file that says when it was signed. A warning begins when a third of the file's life is left. */
export const SIGNED_AT = 'x-baton-signed-at'
