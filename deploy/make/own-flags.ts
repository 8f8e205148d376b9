// What the configuration in the working directory says to a script of ours, as flags. They stand in front of those that are typed, and of
// a flag that is there twice the last one counts.

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
  // a folder of this host is not there in a container
  const seen = feed !== null && !isAbsolute(feed) ? ['--feed', feed] : []
  return ['--dist', join(folder, RELEASES_FOLDER), ...(image === null ? [] : ['--repository', image]), ...seen]
}

/** Of `baton trust WORD`. */
export async function trustFlags(word: string): Promise<string[]> {
  const project = await projectHere()
  if (project === null) return []
  const { folder, service } = project
  return ['--dir', join(folder, RELEASES_FOLDER), ...(word === 'init' ? ['--service', service] : [])]
}

/** Of `baton deploy systemd`. */
export async function systemdFlags(): Promise<string[]> {
  const project = await projectHere()
  if (project === null) return []
  const feed = project.feed ?? folderFeed(project)
  return ['--service', project.service, ...(feed === null ? [] : ['--feed', feed])]
}

/** An author who publishes into a folder of this host, or to GitHub, has named the feed by that. */
export function folderFeed({ publish }: Project): string | null {
  return publish !== null && (isAbsolute(publish) || publish.startsWith('github:')) ? publish : null
}
