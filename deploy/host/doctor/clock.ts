// Checks the clock: with a wrong one, certificates cannot be checked.

import { dateOf } from '../../lib/http.ts'
import { feedOf } from '../service/configuration.ts'
import { failure, type Finding, ok, type Subject, warning } from './finding.ts'

const CLOCK_TOLERANCE_MS = 5 * 60_000

export async function checkClock({ receipt, feed }: Subject): Promise<Finding[]> {
  const now = Date.now()
  if (receipt !== null && Date.parse(receipt.installedAt) > now + CLOCK_TOLERANCE_MS) {
    return [
      failure(
        'clock',
        `the clock says ${new Date(now).toISOString()}, before the install of ${receipt.installedAt}`,
        'set the clock: certificates cannot be checked with a wrong one',
      ),
    ]
  }
  const setting = receipt === null ? feed : await feedOf(receipt)
  const url =
    setting === null
      ? null
      : setting.startsWith('github:')
        ? 'https://api.github.com/'
        : /^https?:/.test(setting)
          ? setting
          : null
  const theirs = url === null ? null : await dateOf(url, 10_000).catch(() => null)
  if (theirs !== null && Math.abs(theirs.getTime() - now) > CLOCK_TOLERANCE_MS) {
    return [
      warning(
        'clock',
        `the clock says ${new Date(now).toISOString()}, the feed's says ${theirs.toISOString()}`,
        'set the clock: certificates cannot be checked with a wrong one',
      ),
    ]
  }
  return [ok('clock', new Date(now).toISOString())]
}
