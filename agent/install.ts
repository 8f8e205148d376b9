// The installer's door: what the command tree and the build need of the agent to install, operate and put right a managed
// install. A service's author takes `index.ts`; the words of both are in `words.ts`.

export { exists, isLeftover, makeDisk } from './disk.ts'
export { ownContainerId } from './container.ts'
export { openFeed } from './feed/open.ts'
export { startWith, WAITING_MAX_MS } from './handover/door.ts'
export { openLibc } from './handover/ffi.ts'
export { type Keeper, openKeeper } from './handover/keeper.ts'
export { noteTag, type Placed, tagInPlace } from './installed.ts'
export { INHERITANCE } from './handover/messages.ts'
export { makeJournal } from './journal.ts'
export { type Lock, takeLock } from './lock.ts'
export type { LogEvent } from './log.ts'
export { type InstallOptions, type ManagedInstall, openInstall } from './managed-install.ts'
export { begin, type OperationRequest, type Restart } from './operation.ts'
export { placesOf } from './places.ts'
export { isAlive, startTimeOf } from './process.ts'
export {
  readReceiptBeside,
  readSystemReceipt,
  type Receipt,
  receiptFor,
  receiptPath,
  SYSTEM_DIRECTORY,
  systemReceiptPath,
  writeReceipt,
} from './receipt.ts'
export { rescue } from './rescue.ts'
export { UPDATE_BOUNDS } from './settings.ts'
export { ownDatabase } from './own-release.ts'
export { ownExecutable, PARENT } from './own-start.ts'
export { makeDownload } from './steps/download.ts'
export { noBackup } from './steps/swap.ts'
export { snapshot } from './steps/snapshot.ts'
export { databasesIn } from './steps/sweep.ts'
export { makeVerify, sha256OfFile } from './steps/verify.ts'
export { installedTag } from './version.ts'
export { type Assets, PAGE, PAGE_LATER, readAssets, webAssets } from './web/assets.ts'
export { assertWritable } from './steps/writable.ts'
