// The publisher's door: what it takes to sign a feed, to read it as a host would, and to make deltas.

export { makeDisk } from './disk/disk.ts'
export { openFeedWith } from './update/feed/open.ts'
export { parseFeedSetting } from './update/feed/setting.ts'
export { METADATA_FOLDER } from './update/feed/signed-feed.ts'
export { faultsOfRoot, SERVICE_MEMBER } from './update/trust/anchor.ts'
export type { Anchor } from './words/release.ts'
export { formFault, type Key, keyIdOf, type Role, ROLES, type SignedRoot } from './update/trust/form.ts'
export { applyDelta, MARGIN_BYTES, readable, type Readable, type Segment, SEGMENT_BYTES } from './update/steps/delta.ts'
export { makeDownload } from './update/steps/download.ts'
export { DELTA_MAX_BYTES, parseManifest } from './update/trust/release-texts.ts'
export { releasesOf, SIGNED_AT } from './update/trust/signed-releases.ts'
export { canonicalize, verifyRoot } from './update/trust/tuf.ts'
