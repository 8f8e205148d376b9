// Draws the page of the outcomes and of the error codes. Pure.

import { type ErrorCode, MEANINGS, type Outcome } from '../../agent/words.ts'
import { REMEDIES } from '../lib/remedies.ts'

const ENDS: Readonly<Record<Outcome, string>> = {
  updated: 'the release is in place, and has passed its probation',
  up_to_date: 'there was nothing to do',
  rolled_back:
    'an older release is in place: the backup, or one by its tag, which is of the kind `update`, as it is fetched',
  reverted: 'the new release failed in the switch or in its probation; the old one serves again, by itself',
  failed:
    'it ended before the switch, and the old release serves on; after `undo_failed` the message says what is left',
  cancelled: 'somebody cancelled it; nothing has changed',
}

const INTRODUCTION = `# Outcomes and error codes

\`npm run pages\` writes this page.

## Outcomes

How an operation of one host ends: \`outcome\` in the API and with \`--json\`. [A fleet](../operator/fleet.md#the-report) has more.

${Object.entries(ENDS)
  .map(([outcome, means]) => `- \`${outcome}\`: ${means}`)
  .join('\n')}

Below are the codes of refusals and of failed operations, each with its HTTP status, its [exit code](cli.md), a cause, and what to do. A code stays the
same; its message may change. In an HTTP answer it is \`code\`; \`type\` is the path of its entry within these pages, which have no address of their own yet.
`

/** Content of docs/reference/errors.md. */
export function errorsPage(): string {
  const entries = Object.entries(REMEDIES).map(([code, { cause, fix }]) => {
    const { status, exit } = MEANINGS[code as ErrorCode]
    return `## ${code}\n\n${status}, exit ${exit}. ${cause}\n\n${fix}\n`
  })
  return [INTRODUCTION, ...entries].join('\n')
}
