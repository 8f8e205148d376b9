// Makes a release smaller, if the author asks for it: of the packages it keeps only the files that the entry reaches, as
// `@vercel/nft` sees it. A trace may miss a module that is required by a computed name. That is why a build starts the application
// before it publishes it.

import { createRequire } from 'node:module'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { BatonError } from '../../agent/words.ts'
import type { ArchiveFile } from './archive.ts'
import type { Project } from './project.ts'

interface Tracer {
  nodeFileTrace(
    entries: string[],
    options: { base: string; ts: boolean; mixedModules: boolean; readFile(path: string): Promise<string | null> },
  ): Promise<{ fileList: Set<string> }>
}

export async function traced(project: Project, files: readonly ArchiveFile[]): Promise<ArchiveFile[]> {
  const tracer = loadTracer(project.folder)
  const { stripTypeScriptTypes } = process.getBuiltinModule('node:module')
  const { fileList } = await tracer.nodeFileTrace(entriesOf(project), {
    base: project.folder,
    ts: true,
    mixedModules: true,
    // it cannot read TypeScript, and says so only as a warning
    readFile: async (path) => {
      const text = await readFile(path, 'utf8').catch(() => null)
      return text !== null && /\.[cm]?ts$/.test(path) ? stripTypeScriptTypes(text) : text
    },
  })
  return files.filter(({ path }) => !path.startsWith('node_modules/') || fileList.has(path))
}

/** What Node is started with, `before` and the modules that `nodeFlags` loads included. */
function entriesOf({ folder, entry, before, nodeFlags }: Project): string[] {
  const require = createRequire(join(folder, 'package.json'))
  const preloaded = nodeFlags.flatMap((flag) => /^--(?:import|require)=(.+)$/.exec(flag)?.[1] ?? [])
  const files = [entry, ...before.map(([file = '']) => file)].map((file) => join(folder, file))
  return [...files, ...preloaded.map((name) => require.resolve(name))]
}

function loadTracer(folder: string): Tracer {
  try {
    return createRequire(join(folder, 'package.json'))('@vercel/nft') as Tracer
  } catch (cause) {
    throw new BatonError('unsupported_host', '`trace` needs `@vercel/nft`, which is not installed in this project', {
      hint: 'run `npm install --save-dev @vercel/nft`, or omit `trace`',
      cause,
    })
  }
}
