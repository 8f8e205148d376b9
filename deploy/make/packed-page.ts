// A page of the documentation as the package has it: a link to a file that is not packed would lead nowhere there. Pure.

import { posix } from 'node:path'

/** Without the links and pictures that lead to none of `packed`: their texts stay. `page` and `packed`: paths below the package. */
export function packedPage(text: string, page: string, packed: readonly string[]): string {
  return text.replaceAll(/!?\[([^\]]*)\]\(([^)\s]+)\)/g, (whole, said: string, target: string) => {
    const [path = ''] = target.split('#')
    if (path === '' || /^[a-z]+:/.test(path)) return whole
    const file = posix.join(posix.dirname(page), path).replace(/\/$/, '')
    return packed.some((one) => one === file || one.startsWith(`${file}/`)) ? whole : said
  })
}
