// The door for the first code of a release, which must load next to nothing: three words, a note and an order, and an ear for what a successor says.

export { doAsOrdered } from './disk/orders.ts'
export { keepLastWords } from './handover/last-words.ts'
export { INHERITANCE } from './words/wire.ts'
export {
  noteRelease,
  ownDatabase,
  type OwnRelease,
  ownRelease,
  RELEASE_WORDS,
  type InstallConfiguration,
  noteStart,
  PARENT,
} from './own.ts'
