// The author's door. A service author calls `embed()`. The rest are the types of its arguments and answers, and the functions
// that the author's own handler may share with the endpoints. An installer imports `install.ts`.

export { type Agent, embed } from './embed.ts'
export { BatonError, type ErrorCode, EXIT, MEANINGS } from './words/errors.ts'
export type { ProcessRole } from './handover/turn.ts'
export type { CarryOptions } from './handover/carry/carry.ts'
export { type ListenerSpec, socketPathFault } from './sockets/listeners.ts'
export { assertOneHost, pathOf, problemOf, readBody, send } from './http/answer.ts'
export { formatEvent, type Log, type LogEvent } from './log.ts'
export type { Authorize } from './http/admit.ts'
export type { TrustedProxy } from './http/trusted-proxy.ts'
export type { EmbedOptions, StopReason, UpdateSettings } from './settings.ts'
export type { Busy } from './words/bounds.ts'
export { type OwnRelease, ownRelease } from './own.ts'
export type { ReleaseKind } from './words/release.ts'
export type {
  Allowed,
  HandoverReport,
  Instance,
  Kind,
  Operation,
  Outcome,
  Skipped,
  Stage,
  Status,
  OnProbation,
  VersionReport,
} from './words/state.ts'
export { progress } from './handover/progress.ts'
export { reportOf, type OperationReport } from './words/report.ts'
export type { NextSwitch, Order } from './words/order.ts'
