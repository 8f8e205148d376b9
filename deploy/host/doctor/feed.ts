// Whether the feed can be used, with the eyes and the environment of the service.

import { openFeed } from '../../../agent/install.ts'
import { BatonError, reasonOf, type TrustReport } from '../../../agent/words.ts'
import { feedOf } from '../service/configuration.ts'
import type { Outside } from '../service/outside.ts'
import { failure, type Finding, ok, type Subject, warning } from './finding.ts'

export async function checkFeed({ layout, receipt, feed }: Subject, outside: Outside): Promise<Finding[]> {
  const setting = receipt === null ? feed : await feedOf(receipt)
  if (setting === null || setting === '')
    return [failure('feed', 'no feed is named', 'name one with `--feed`', 'invalid_settings')]
  await using open = openFeed(outside.feedAt(setting), { service: layout.service, stateDirectory: null })
  try {
    const release = await open.latest(() => false)
    const found =
      release === null
        ? warning('feed', `${setting} has no release for this host`)
        : ok('feed', `${setting} has ${release.tag}`)
    return [found, trustFinding(await open.trust())]
  } catch (cause) {
    const code = cause instanceof BatonError ? cause.code : 'check_failed'
    const reason = reasonOf(cause)
    // what curl trusts is the host's; what a service trusts comes with Node and its environment
    const hint = /self.signed|issuer certificate|unable to verify/i.test(reason)
      ? `its authority is not one that comes with Node: \`systemctl edit ${layout.service}\` with \`[Service]\` and \`Environment=NODE_EXTRA_CA_CERTS=FILE\`, then restart it`
      : 'is it reachable from here, for the user and with the environment of the service?'
    return [failure('feed', `${setting} cannot be used: ${reason}`, hint, code), trustFinding(await open.trust())]
  }
}

function trustFinding({ signed, warning: soon, metadata }: TrustReport): Finding {
  if (!signed) {
    const hint = 'the maintainer builds with `--root` and signs the feed: docs/guides/trust.md'
    return warning('trust', 'not signed: whoever can write to the feed decides what runs here', hint)
  }
  if (soon !== null) return warning('trust', soon, 'the maintainer has to sign it anew (`baton trust refresh`)')
  const [first] = metadata.map(({ expiresAt }) => expiresAt).toSorted()
  return ok('trust', `signed, until ${first ?? 'it was asked'}`)
}
