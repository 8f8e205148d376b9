// The author's door. `embed()` is what a service author calls; the rest are words for its arguments and answers, and what its
// own handler may share with the endpoints. An installer takes `install.ts`.

export { type Agent, embed } from './embed.ts'
export { BatonError, type ErrorCode, EXIT, MEANINGS } from './errors.ts'
export type { CarryOptions } from './handover/carry.ts'
export type { ListenerSpec } from './handover/listeners.ts'
export { assertOneHost, pathOf, problemOf, readBody, send } from './http.ts'
export { formatEvent, type Log, type LogEvent } from './log.ts'
export type { TrustedProxy } from './client-address.ts'
export { type EmbedOptions, socketPathFault, type StopReason, UPDATE_BOUNDS, type UpdateSettings } from './settings.ts'
export { type OwnRelease, ownRelease } from './own-release.ts'
export type { ReleaseKind } from './release.ts'
export { reportOf } from './state.ts'
export type {
  HandoverReport,
  Instance,
  Kind,
  Operation,
  OperationReport,
  Outcome,
  Skipped,
  Stage,
  Status,
  Unproven,
  VersionReport,
} from './state.ts'
