// What a process wrote last, as the end of a message about its failure, and the message without it. Pure.

import { KNOWS_NO_SWITCH } from './blame.ts'

/** `said`: one line, see `said.ts`, or KNOWS_NO_SWITCH; null or empty: it wrote nothing. */
export function afterPrinting(said: string | null): string {
  if (said === KNOWS_NO_SWITCH) return ` ${said}`
  return said === null || said === '' ? '' : ` after printing: ${said}`
}

/** For one line among others: what has happened, and why it is not held against the release. The whole message is in the journal. */
export function withoutWords(message: string): string {
  return message.replace(
    /(?: after printing: |, (?:after it wrote: |saying "|and its log ends with ")| without (?:sending )?a message that ).*?(; [^;|]*, so \S+ is not marked as failed|$)/s,
    '$1',
  )
}
