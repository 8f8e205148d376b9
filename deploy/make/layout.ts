// Says whether the packages of an application lie where a release of kind `app` can take them: in node_modules, inside its folder.
// Must hold: it starts on every Node that the package supports, because `baton init` asks it.

import { existsSync } from 'node:fs'
import { dirname, join, relative, sep } from 'node:path'
import { BatonError } from '../../agent/words.ts'
import { above, type Packages, readManifest } from './packages.ts'

/** `folder`: a real path. `entry`: below it; null if it is not known. Null if a release can hold every package that was found. */
export async function layoutFault(
  folder: string,
  entry: string | null,
  { packages, missing }: Packages,
): Promise<BatonError | null> {
  if (missing.length > 0 && above(folder, isPlugAndPlay) !== null)
    return new BatonError(
      'invalid_settings',
      "Yarn installed the packages as archives (Plug'n'Play) rather than in node_modules, and a release cannot contain such archives",
      { hint: 'run `yarn config set nodeLinker node-modules`, then `yarn install`' },
    )
  const outside = packages.find((one) => !isInside(folder, one.folder))?.folder
  if (outside === undefined) return null
  const workspace = await workspaceAbove(folder)
  return new BatonError('invalid_settings', `the package ${outside} must be inside ${folder}`, {
    hint:
      workspace !== null && isInside(workspace, outside)
        ? `a workspace is packed from its root: move baton.config.json to ${workspace}, with \`"entry": "${toArchive(workspace, join(folder, entry ?? 'server.js'))}"\`, and build there; use \`exclude\` to leave other members out`
        : 'install copies instead of links (`npm install --install-links`), or list a bundled folder in `include`',
  })
}

export function isInside(root: string, path: string): boolean {
  return path === root || path.startsWith(root + sep)
}

/** The path of a file in a release that is packed from `root`. */
export function toArchive(root: string, path: string): string {
  return relative(root, path).replaceAll(sep, '/')
}

/** The folder of the package that `entry` is in, such as a member of a workspace: `folder`, or one below it. */
export function packageWith(folder: string, entry: string): string {
  const own = above(dirname(join(folder, entry)), (at) => existsSync(join(at, 'package.json')))
  return own !== null && isInside(folder, own) && !own.includes(`${sep}node_modules${sep}`) ? own : folder
}

/** https://yarnpkg.com/advanced/pnp-spec */
function isPlugAndPlay(folder: string): boolean {
  return existsSync(join(folder, '.pnp.cjs')) || existsSync(join(folder, '.pnp.js'))
}

async function workspaceAbove(folder: string): Promise<string | null> {
  for (let at = dirname(folder); ; at = dirname(at)) {
    if (existsSync(join(at, 'pnpm-workspace.yaml')) || 'workspaces' in (await readManifest(at))) return at
    if (dirname(at) === at) return null
  }
}
