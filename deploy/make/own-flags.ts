// Turns the configuration in the working directory into flags for the kit's scripts. `baton` puts them in front of the typed
// flags: the last one of a repeated flag counts.

import { existsSync } from 'node:fs'
import { isAbsolute, join, resolve } from 'node:path'
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
  return ['--out', join(folder, RELEASES_FOLDER), ...(image === null ? [] : ['--repository', image]), ...seen]
}

/** Flags for `baton trust WORD`. */
export async function trustFlags(word: string): Promise<string[]> {
  const project = await projectHere()
  if (project === null) return []
  const { folder, service } = project
  return ['--dir', join(folder, RELEASES_FOLDER), ...(word === 'init' ? ['--service', service] : [])]
}

/** Flags for `baton deploy host`. */
export async function hostFlags(): Promise<string[]> {
  const project = await projectHere()
  if (project === null) return []
  const feed = project.feed ?? folderFeed(project)
  return ['--service', project.service, ...(feed === null ? [] : ['--feed', feed])]
}

/** Flags for `baton deploy fleet`. */
export async function fleetFlags(): Promise<string[]> {
  const project = await projectHere()
  return project === null ? [] : ['--service', project.service]
}

/** An author who publishes into a folder of this host, or to GitHub, has thereby named the feed. Null for other targets. */
export function folderFeed({ publish }: Project): string | null {
  return publish !== null && (isAbsolute(publish) || publish.startsWith('github:')) ? publish : null
}
