// Whether the feed can be used, with the eyes and the environment of the service.

import { openFeed } from '../../../agent/install.ts'
import { BatonError, reasonOf } from '../../../agent/words.ts'
import { feedOf } from '../service/configuration.ts'
import type { Outside } from '../service/outside.ts'
import { failure, type Finding, ok, type Subject, warning } from './finding.ts'

export async function checkFeed({ layout, receipt, feed }: Subject, outside: Outside): Promise<Finding[]> {
  const setting = receipt === null ? feed : await feedOf(receipt)
  if (setting === null || setting === '')
    return [failure('feed', 'no feed is named', 'name one with `--feed`', 'invalid_settings')]
  try {
    await using open = openFeed(outside.feedAt(setting), { service: layout.service, stateDirectory: null })
    const release = await open.latest(() => false)
    if (release === null) return [warning('feed', `${setting} has no release for this host`)]
    return [ok('feed', `${setting} has ${release.tag}`)]
  } catch (cause) {
    const code = cause instanceof BatonError ? cause.code : 'check_failed'
    const hint = 'is it reachable from here, for the user and with the environment of the service?'
    return [failure('feed', `${setting} cannot be used: ${reasonOf(cause)}`, hint, code)]
  }
}
