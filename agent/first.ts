// The door for the first code of a release, which must load next to nothing: three words, a note and an order, and an ear for what a successor says.

export { copyIfOrdered } from './copy-database.ts'
export { keepLastWords } from './handover/last-words.ts'
export { INHERITANCE } from './handover/messages.ts'
export { noteRelease, ownDatabase, type OwnRelease, ownRelease, RELEASE_WORDS } from './own-release.ts'
export { type InstallConfiguration, noteStart, PARENT } from './own-start.ts'
