// Figures that a soak has measured go into a page, each between the two marks of its section.

import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../../deploy/make/place.ts'

/** Replaces what stands in `section` of a page of the repository. Throws where the page has no such section. */
export async function writeSection(section: string, markdown: string, page = 'docs/about/faults.md'): Promise<void> {
  const path = join(PROJECT, page)
  const [begin, end] = [`<!-- ${section} -->`, `<!-- /${section} -->`]
  const text = await readFile(path, 'utf8')
  const [from, to] = [text.indexOf(begin), text.indexOf(end)]
  if (from < 0 || to < from) throw new Error(`expected ${begin} and ${end} in ${page}`)
  await writeFile(path, `${text.slice(0, from + begin.length)}\n\n${markdown}\n\n${text.slice(to)}`)
}
