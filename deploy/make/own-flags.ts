// Turns the configuration in the working directory into flags for the kit's scripts. `baton` puts them in front of the typed
// flags: the last one of a repeated flag counts.

import { existsSync } from 'node:fs'
import { isAbsolute, join, resolve } from 'node:path'
import type { Flags } from '../lib/flags.ts'
import { CONFIG, type Project, readProject, RELEASES_FOLDER } from './project.ts'

async function projectHere(): Promise<Project | null> {
  return existsSync(CONFIG) ? await readProject(resolve('.')) : null
}

export async function imageFlags(): Promise<string[]> {
  const project = await projectHere()
  if (project === null) return []
  const { folder, image, feed } = project
  // a container does not have this host's folders
  const seen = feed !== null && !isAbsolute(feed) ? ['--feed', feed] : []
  return ['--dist', join(folder, RELEASES_FOLDER), ...(image === null ? [] : ['--repository', image]), ...seen]
}

/** Flags for `baton trust WORD`. */
export async function trustFlags(word: string): Promise<string[]> {
  const project = await projectHere()
  if (project === null) return []
  const { folder, service } = project
  return ['--dir', join(folder, RELEASES_FOLDER), ...(word === 'init' ? ['--service', service] : [])]
}

/** Flags for `baton deploy systemd`. */
export async function systemdFlags(): Promise<string[]> {
  const project = await projectHere()
  if (project === null) return []
  const feed = project.feed ?? folderFeed(project)
  return ['--service', project.service, ...(feed === null ? [] : ['--feed', feed])]
}

/** An author who publishes into a folder of this host, or to GitHub, has thereby named the feed. Null for other targets. */
export function folderFeed({ publish }: Project): string | null {
  return publish !== null && (isAbsolute(publish) || publish.startsWith('github:')) ? publish : null
}

export const initFlags = {
  service: { type: 'string', valueHint: 'name', description: 'of the service (default: as in package.json)' },
  try: { type: 'boolean', default: false, description: 'start it once from source, to see its database and its ports' },
} as const satisfies Flags

export const rehearseFlags = {
  from: { type: 'string', valueHint: 'vX.Y.Z', description: 'the release that is in use' },
  to: { type: 'string', valueHint: 'vX.Y.Z', description: 'the release that is tried (the newest)' },
  data: { type: 'string', valueHint: 'path', description: 'a database, or a state directory: it is copied' },
  'start-timeout': { type: 'string', valueHint: 'seconds', default: '60', description: 'for each start' },
} as const satisfies Flags
