// The shell commands of a page, as somebody reads them there. Which test runs which page: test/command-lines.test.ts.

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../../deploy/make/place.ts'

const BLOCK = /^```sh\n([^]*?)^```/gm

/** Each block of the page; with a heading, those between it and the next one. Throws if there is none: the page has changed. */
export async function commandsOf(page: string, heading?: string): Promise<string[]> {
  const whole = await readFile(join(PROJECT, page), 'utf8')
  const blocks = shellBlocks(heading === undefined ? whole : below(whole, heading))
  if (blocks.length === 0) throw new Error(`${page}: there are no commands below ${heading ?? 'its title'}`)
  return blocks
}

/** What stands between the heading and the next one; empty if there is no such heading. */
export function below(text: string, heading: string): string {
  const [, after = ''] = text.split(new RegExp(`^##+ ${heading}$`, 'm'))
  return after.split(/^##+ /m)[0] ?? ''
}

export function shellBlocks(text: string): string[] {
  return Array.from(text.matchAll(BLOCK), ([, commands = '']) => commands)
}
