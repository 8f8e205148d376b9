// Modules of Node that a service does not need until something is asked of it. They are part of Node itself, not files beside the
// executable: once the disk has changed they load as before. Reading them costs a start more than the agent's own code.

/** for tokens, names and sums */
export const nodeCrypto = () => process.getBuiltinModule('node:crypto')

/** for files in other threads: what a start reads, it reads at once */
export const nodeFiles = () => process.getBuiltinModule('node:fs/promises')
