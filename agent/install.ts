// The installer's door: what the command tree and the build need of the agent to install, operate and repair a managed install. A
// service's author imports `index.ts`; `words.ts` has the types of both.

export { copyBeside, FILES_MAX_BYTES } from './disk/copy-beside.ts'
export { tagOfCopy } from './disk/copies.ts'
export { exists, isLeftover, makeDisk, mebibytes, nearestExisting, readSmall } from './disk/disk.ts'
export { hold } from './handover/hold/holder.ts'
export { COMMAND, ownCommand, ownContainerId, ownDatabase, ownExecutable, ownRelease, PARENT } from './own.ts'
export { openFeed } from './update/feed/open.ts'
export { runBounded } from './sockets/bounded.ts'
export { startWith } from './sockets/start-with.ts'
export { WAITING_MAX_MS } from './sockets/store.ts'
export { callLibc } from './sockets/libc.ts'
export { type DescriptorStore, openDescriptorStore } from './sockets/descriptor-store.ts'
export { freePort, type Started, startProgram } from './update/started.ts'
export { noteTag, type Placed, tagInPlace } from './update/installed.ts'
export { blameless, hindranceOf, lateBy, orHindered } from './words/blame.ts'
export { INHERITANCE, TRIAL } from './words/wire.ts'
export { lineOf, plainOf } from './words/said.ts'
export { isCount, isObject, isTime, parsedJson } from './words/untrusted.ts'
export { makeJournal } from './disk/journal.ts'
export { type Lock, takeLock } from './disk/lock.ts'
export type { LogEvent } from './log.ts'
export { type InstallOptions, type ManagedInstall, openInstall } from './disk/managed-install.ts'
export { begin, newOperation, type OperationRequest, type Restart } from './update/operation.ts'
export { asideDirectory, placesOf, snapshotDirectory } from './disk/places.ts'
export { descendantsOf, isAlive, signalAll, startedWith, startTimeOf } from './sockets/process.ts'
export {
  readReceiptBeside,
  readSystemReceipt,
  type Receipt,
  receiptFor,
  receiptPath,
  SYSTEM_DIRECTORY,
  systemReceiptPath,
  writeReceipt,
} from './disk/receipt.ts'
export { WORD } from './own.ts'
export { AUTO_MAX_BYTES, startMsAfter, wholeMsOf } from './update/rehearsal/budget.ts'
export { REHEARSAL_FOLDER, REHEARSAL_REPORT, REHEARSAL_REQUEST, rehearsalFolder } from './update/rehearsal/ask-cage.ts'
export { conduct } from './update/rehearsal/conduct.ts'
export { EXECUTABLE_MAX_BYTES } from './update/trust/release-texts.ts'
export { judge, type Judged } from './update/rehearsal/judge.ts'
export { readReportOf, type Report } from './update/rehearsal/report.ts'
export { ANOTHER_USERS, foreignHolder } from './disk/sqlite-locks.ts'
export { exchangeNow } from './disk/state-mark.ts'
export { wayToAside } from './update/own-data.ts'
export { COPY_FOLDERS, keptCopies, removeCopies } from './update/kept-copies.ts'
export { refuseNewerSchema, snapshotFor } from './update/own-data.ts'
export { knownRehearsal, rehearse } from './update/rehearsal/rehearse.ts'
export { sweep } from './update/ending.ts'
export { rescue } from './update/rescue.ts'
export { assertRoom, type Need, needsBeside, needsOfAsset, needsOfExecutable, roomFor } from './disk/room.ts'
export { USUAL_START_MS } from './sockets/systemd.ts'
export { UPDATE_BOUNDS } from './words/bounds.ts'
export { makeDownload } from './update/steps/download.ts'
export { noBackup } from './update/steps/swap.ts'
export { assertDatabaseThere, snapshot } from './update/steps/snapshot.ts'
export { isWrittenTo } from './disk/quiet-copy.ts'
export { databasesIn, isDatabase } from './disk/sweep.ts'
export { makeVerify, sha256OfFile } from './update/steps/verify.ts'
export { installedTag, runVersion } from './update/version.ts'
export { type Assets, PAGE, PAGE_LATER, readAssets, webAssets } from './web/assets.ts'
export { assertWritable } from './disk/writable.ts'
