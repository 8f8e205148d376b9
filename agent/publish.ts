// The publisher's door: what signing a feed, and looking at it as a host would, needs of the agent.

export { openFeedWith } from './feed/open.ts'
export { parseFeedSetting } from './feed/setting.ts'
export { METADATA_FOLDER } from './feed/signed.ts'
export { type Anchor, faultsOfRoot, SERVICE_MEMBER } from './trust/anchor.ts'
export { formFault, type Key, keyIdOf, type Role, ROLES, type SignedRoot } from './trust/form.ts'
export { parseManifest } from './trust/release-texts.ts'
export { releasesOf, SIGNED_AT } from './trust/signed.ts'
export { canonicalize, verifyRoot } from './trust/tuf.ts'
