// Functions of the C library through node:ffi (26.1 and later, experimental). The one place that opens it.

import { createRequire } from 'node:module'

export type Functions = Record<string, (...values: unknown[]) => unknown>

/** The functions by their names. Throws where this Node has no ffi or the C library lacks one of them. */
export function openLibc(symbols: Record<string, { arguments: string[]; return: string }>): Functions {
  const ffi = createRequire(process.execPath)('node:ffi') as {
    dlopen(library: null, symbols: object): { functions: Functions }
  }
  return ffi.dlopen(null, symbols).functions
}
