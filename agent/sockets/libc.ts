// Functions of the C library through node:ffi (26.1 and later, experimental). The one place that opens it.

import { createRequire } from 'node:module'

interface Ffi {
  dlopen(library: null, symbols: object): { functions: Functions }
  getRawPointer(buffer: Buffer): bigint
}

export type Functions = Record<string, (...values: unknown[]) => unknown>

/** The functions by their names. Throws where this Node has no ffi or the C library lacks one of them. */
export function openLibc(symbols: Record<string, { arguments: string[]; return: string }>): Functions {
  return ffi().dlopen(null, symbols).functions
}

/** Where the bytes of `buffer` lie. It must not be collected, nor be a small one of Node's pool, while C holds this. */
export function addressOf(buffer: Buffer): bigint {
  return ffi().getRawPointer(buffer)
}

function ffi(): Ffi {
  return createRequire(process.execPath)('node:ffi') as Ffi
}
