// Opens feeds for tests: for a given service, and without the environment of the user who runs the tests.

import { openFeedWith, type FeedMeans } from '../../agent/update/feed/open.ts'
import type { OpenFeed } from '../../agent/words/release.ts'

export type LabFeedOptions = Partial<Omit<FeedMeans, 'target'>>

/** Opens a feed for this machine's platform and the service `beacon`. */
export function labFeed(setting: string, options: LabFeedOptions = {}): OpenFeed {
  const target = { service: 'beacon', os: process.platform, arch: process.arch }
  return openFeedWith(setting, {
    environment: {},
    trust: null,
    stateDirectory: null,
    onPassedOver: () => {},
    ...options,
    target,
  })
}
