// Figures that a soak has measured go into docs/faults.md, each between the two marks of its section.

import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../../deploy/build/place.ts'

const PAGE = join(PROJECT, 'docs/faults.md')

/** Replaces what stands in `section`. Throws where the page has no such section. */
export async function writeSection(section: string, markdown: string): Promise<void> {
  const [begin, end] = [`<!-- ${section} -->`, `<!-- /${section} -->`]
  const page = await readFile(PAGE, 'utf8')
  const [from, to] = [page.indexOf(begin), page.indexOf(end)]
  if (from < 0 || to < from) throw new Error(`expected ${begin} and ${end} in ${PAGE}`)
  await writeFile(PAGE, `${page.slice(0, from + begin.length)}\n\n${markdown}\n\n${page.slice(to)}`)
}
