// Reads the files of an author's folder that nobody has checked: one that is not there, or is no JSON, is empty.

import { readFileSync } from 'node:fs'
import { parsedJson } from '../../agent/words.ts'

const SOURCE_MAX_BYTES = 1024 * 1024

export function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8').slice(0, SOURCE_MAX_BYTES)
  } catch {
    return ''
  }
}

export function readJson(path: string): unknown {
  return parsedJson(readText(path)) ?? {}
}
