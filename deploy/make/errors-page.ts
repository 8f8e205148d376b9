// Draws the page of the outcomes and of the error codes. Pure.

import { type ErrorCode, MEANINGS, type Outcome } from '../../agent/words.ts'
import { REMEDIES } from '../lib/remedies.ts'

const ENDS: Readonly<Record<Outcome, string>> = {
  updated: 'the release is installed and has passed probation',
  up_to_date: 'there was nothing to do',
  rolled_back: 'the backup, or an older release chosen by its tag, is installed',
  reverted: 'the new release failed during the switch or probation, and the old one was restored automatically',
  failed:
    'the operation ended before the switch, and the old release is still serving (unless `code` is `undo_failed`: then see the message)',
  cancelled: 'someone cancelled the operation; nothing has changed',
}

const INTRODUCTION = `# Outcomes and error codes

Written by \`npm run pages\`.

## Outcomes

\`outcome\` (in the API and with \`--json\`) says how an operation on one host ended. Operations on [a fleet](../operator/fleet.md#the-report) have more outcomes.

${Object.entries(ENDS)
  .map(([outcome, means]) => `- \`${outcome}\`: ${means}`)
  .join('\n')}

Below are the codes of refusals and failures, each with its HTTP status, [exit code](cli.md), cause, and what to do. Codes are stable; messages may change.
In an HTTP response, \`code\` is one of these, and \`type\` the path of its section on this page (not a URL).
`

/** Content of docs/reference/errors.md. */
export function errorsPage(): string {
  const entries = Object.entries(REMEDIES).map(([code, { cause, fix }]) => {
    const { status, exit } = MEANINGS[code as ErrorCode]
    return `## ${code}\n\n${status}, exit ${exit}. ${cause}\n\n${fix}\n`
  })
  return [INTRODUCTION, ...entries].join('\n')
}
