// The words as a door of their own: what everything of ours may speak, and nothing that does anything. Pure, so that a script
// on an older Node, which needs neither a feed nor a handover, loads it.

export * from './words/errors.ts'
export * from './words/release.ts'
export * from './words/state.ts'
