// The shell commands of a page, as somebody reads them there. Which test runs which page: test/command-lines.test.ts.

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../../deploy/make/place.ts'

const BLOCK = /^```sh\n([^]*?)^```/gm

/** Each block of the page; with a heading, those between it and the next one. Throws if there is none: the page has changed. */
export async function commandsOf(page: string, heading?: string): Promise<string[]> {
  const whole = await readFile(join(PROJECT, page), 'utf8')
  const below = heading === undefined ? whole : (whole.split(new RegExp(`^##+ ${heading}$`, 'm'))[1] ?? '')
  const part = heading === undefined ? below : (below.split(/^##+ /m)[0] ?? '')
  const blocks = shellBlocks(part)
  if (blocks.length === 0) throw new Error(`${page}: there are no commands below ${heading ?? 'its title'}`)
  return blocks
}

export function shellBlocks(text: string): string[] {
  return Array.from(text.matchAll(BLOCK), ([, commands = '']) => commands)
}
