// The door to the shared types and pure functions that all of Baton uses. They load nothing else, so that a script on an older
// Node can load them without a feed or a handover.

export * from './words/bounds.ts'
export * from './words/configuration.ts'
export * from './words/errors.ts'
export * from './words/lent.ts'
export * from './words/pause.ts'
export * from './words/rehearsal.ts'
export * from './words/release.ts'
export * from './words/report.ts'
export * from './words/schedule.ts'
export * from './words/settings-table.ts'
export { type Faults, keep, type Setting } from './words/table.ts'
export * from './words/state.ts'
export * from './words/order.ts'
export * from './words/until-well.ts'
export { quoted } from './words/untrusted.ts'
export * from './words/waits.ts'
