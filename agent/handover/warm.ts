// What a gated process does before it says that it waits: clients wait from the moment the gate opens, and not yet.

/** parts of Node that most services load, and this code too: loading one has no side effect */
const USUAL = [
  'http',
  'https',
  'tls',
  'crypto',
  'zlib',
  'fs/promises',
  'stream/promises',
  'dgram',
  'sqlite',
  'worker_threads',
]

export function loadUsual(): void {
  for (const name of USUAL) process.getBuiltinModule(`node:${name}`)
}
