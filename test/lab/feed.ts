// Opens feeds for tests: for a given service, and without the environment of the user who runs the tests.

import { openFeedWith, type FeedMeans } from '../../agent/update/feed/open.ts'
import type { FeedChoice } from '../../agent/words/feed-choice.ts'
import type { OpenFeed } from '../../agent/words/release.ts'

export type LabFeedOptions = Partial<Omit<FeedMeans, 'target' | 'channel'>>

/** Opens a feed for this machine's platform and the service `beacon`. */
export function labFeed(choice: string | FeedChoice, options: LabFeedOptions = {}): OpenFeed {
  const target = { service: 'beacon', os: process.platform, arch: process.arch }
  return openFeedWith(choice, {
    environment: {},
    trust: null,
    stateDirectory: null,
    onPassedOver: () => {},
    ...options,
    target,
  })
}
