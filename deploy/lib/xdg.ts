// Where one user's files are: https://specifications.freedesktop.org/basedir-spec/latest/

import { isAbsolute, join } from 'node:path'

const USUAL = {
  XDG_CACHE_HOME: '.cache',
  XDG_CONFIG_HOME: '.config',
  XDG_DATA_HOME: '.local/share',
  XDG_STATE_HOME: '.local/state',
} as const

export interface Home {
  home: string
  environment: Readonly<Record<string, string | undefined>>
}

/** A relative value is to be ignored. */
export function xdgFolder(name: keyof typeof USUAL, { home, environment }: Home): string {
  const value = environment[name]
  return value !== undefined && isAbsolute(value) ? value : join(home, USUAL[name])
}
