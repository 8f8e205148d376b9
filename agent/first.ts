// The door for the first code of a release, which must load next to nothing. It offers what that code needs to note the release
// and its start, carry out an order, keep the last words for the predecessor, and let held sockets go if the start fails.

export { doAsOrdered } from './disk/as-ordered.ts'
export { mostMsOf, readOwed } from './disk/owed.ts'
export { ownState } from './disk/state-mark.ts'
export { receiptPath, systemReceiptPath } from './disk/places.ts'
export { GATE_MARK, waitAtContainerGate } from './handover/container-gate.ts'
export { isHolder, waitAtGate } from './handover/gate.ts'
export { hearProgress } from './handover/said-progress.ts'
export { keepLastWords, leaveLastWords } from './handover/last-words.ts'
export { askHere, type LocalPlace, type Protocol, schemeOf } from './sockets/local-request.ts'
export { type Configuration, readConfiguration } from './words/configuration.ts'
export { msOf } from './words/duration.ts'
export { HOLDER } from './words/lent.ts'
export { letGoUnlessServing } from './sockets/last-resort.ts'
export { endWithParent } from './sockets/libc-later.ts'
export { descendantsOf, ownContainerId, startTimeOf } from './sockets/process.ts'
export { allowLongStart } from './sockets/systemd.ts'
export { INHERITANCE } from './words/wire.ts'
export {
  BEFORE,
  COMMAND,
  noteRelease,
  ownDatabase,
  type OwnRelease,
  ownRelease,
  RELEASE_FILE,
  noteStart,
  PARENT,
  WORD,
} from './own.ts'
export { ownWords } from './update/own-command.ts'
