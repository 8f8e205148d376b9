// The installer's door: what the command tree and the build need of the agent to install, operate and repair a managed install. A
// service's author imports `index.ts`; `words.ts` has the types of both.

export { copyBeside, FILES_MAX_BYTES } from './disk/copy-beside.ts'
export { tagOfCopy } from './disk/copies.ts'
export { type Disk, exists, makeDisk, mebibytes, nearestExisting, readSmall } from './disk/disk.ts'
export { conduct, type Ground } from './handover/conduct.ts'
export { hold } from './handover/hold/holder.ts'
export { COMMAND, ownDatabase, ownExecutable, ownRelease, PARENT } from './own.ts'
export { ownCommand, ownWords } from './update/own-command.ts'
export { fetchHere } from './update/fetch-here.ts'
export { openFeed } from './update/feed/open.ts'
export { runBounded } from './sockets/bounded.ts'
export { isAny, isOnLoopback } from './sockets/questions.ts'
export { startWith } from './sockets/start-with.ts'
export { restartMark } from './sockets/shut-door.ts'
export { WAITING_MAX_MS } from './sockets/store.ts'
export { callLibc } from './sockets/libc.ts'
export { type DescriptorStore, openDescriptorStore } from './sockets/descriptor-store.ts'
export { freePort, type Started, startProgram } from './update/started.ts'
export { noteTag, type Placed, tagInPlace } from './update/installed.ts'
export { blameless, hindranceOf, lateBy, orHindered } from './words/blame.ts'
export { namesInGreeting } from './sockets/loan.ts'
export { HOLDER } from './words/lent.ts'
export { INHERITANCE, TRIAL } from './words/wire.ts'
export { lineOf, plainOf } from './words/said.ts'
export { isCount, isTime } from './words/untrusted.ts'
export { isFlag, isText, orNull, shape, textLike } from './words/shapes.ts'
export { doneAs, makeJournal } from './disk/journal.ts'
export { type Lock, takeLock } from './disk/lock.ts'
export type { LogEvent } from './log.ts'
export { type InstallOptions, type ManagedInstall, openInstall } from './disk/managed-install.ts'
export { begin, newOperation, type OperationRequest, type Restart } from './update/operation.ts'
export { refuseBarred } from './update/barrier.ts'
export { mostMsOf, OWED_MAX_BYTES, paidPath } from './disk/owed.ts'
export {
  asideDirectory,
  isLeftover,
  markPath,
  owedPath,
  placesOf,
  receiptPath,
  snapshotDirectory,
  SYSTEM_DIRECTORY,
  systemReceiptPath,
} from './disk/places.ts'
export { MARK_MAX_BYTES } from './disk/state-mark.ts'
export {
  descendantsOf,
  isAlive,
  isGoneIn,
  ownContainerId,
  signalAll,
  startedWith,
  startTimeOf,
} from './sockets/process.ts'
export {
  readReceiptBeside,
  readSystemReceipt,
  type Receipt,
  receiptFor,
  isNamedBy,
  writeReceipt,
} from './disk/receipt.ts'
export { WORD } from './own.ts'
export { IN_CONTAINER, updateCommand } from './words/other-way.ts'
export { AUTO_MAX_BYTES, startMsAfter, wholeMsOf } from './update/rehearsal/budget.ts'
export { REHEARSAL_FOLDER, REHEARSAL_REPORT, REHEARSAL_REQUEST, rehearsalFolder } from './update/rehearsal/ask-cage.ts'
export { perform } from './update/rehearsal/perform.ts'
export { EXECUTABLE_MAX_BYTES } from './update/trust/release-texts.ts'
export { judge, type Judged } from './update/rehearsal/judge.ts'
export { readReportOf, type Report } from './update/rehearsal/report.ts'
export { ANOTHER_USERS, foreignHolder } from './disk/sqlite-locks.ts'
export { exchangeNow } from './disk/state-mark.ts'
export {
  markContainerRestore,
  markContainers,
  oweCopies,
  oweRestore,
  settleContainers,
  wayToAside,
} from './update/own-data.ts'
export { COPY_FOLDERS, keptCopies, removeCopies } from './update/kept-copies.ts'
export { restoreCopies } from './update/restore-copies.ts'
export { copyWith, makeCopies, refuseAlwaysAlive, snapshotPlan } from './update/steps/dump.ts'
export { payBeforeStart } from './update/steps/pay-copies.ts'
export { lastTo, refuseNewerSchema, snapshotFor } from './update/own-data.ts'
export { knownRehearsal, refuseIrreversible, rehearse } from './update/rehearsal/rehearse.ts'
export { clearTemporaries, sweep } from './update/ending.ts'
export { rescue } from './update/rescue.ts'
export { rulesOf } from './update/schedule/policy-files.ts'
export {
  assertRoom,
  assertWritable,
  type Need,
  needsBeside,
  needsOfAsset,
  needsOfExecutable,
  roomFor,
} from './disk/room.ts'
export { USUAL_START_MS } from './sockets/systemd.ts'
export { STOP_MAX_MS, USUAL_STOP_MS } from './sockets/long-stop.ts'
export { UPDATE_BOUNDS } from './words/bounds.ts'
export { foreseeOtherWire } from './update/other-wire.ts'
export { downloadBytes } from './update/chosen-delta.ts'
export { makeDownload } from './update/steps/download.ts'
export { noBackup } from './update/steps/swap.ts'
export { assertDatabaseThere, snapshot } from './update/steps/snapshot.ts'
export { readProgress } from './disk/read-progress.ts'
export { isWrittenTo } from './disk/quiet-copy.ts'
export { databasesIn, isDatabase, isMadeAgain, unpackedHome, writtenIn } from './disk/sweep.ts'
export { makeVerify, sha256OfFile } from './update/steps/verify.ts'
export { installedTag, runVersion } from './update/version.ts'
export { type Assets, BADGE, PAGE, PAGE_LATER, readAssets, webAssets } from './web/panel.ts'
