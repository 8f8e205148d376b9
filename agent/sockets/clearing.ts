// An application removes what is at its socket's path: before it listens, because a killed process leaves the name, or when it stops. If
// another process of the service listens there, that would take the name from a living socket, and clients would be refused until the
// next one listens. So the application is told that nothing is there any more, and the name stays.
// Must hold: only these paths are spared, and only for this process.

import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { resolve } from 'node:path'
import { fileURLToPath } from 'node:url'

type Remove = (path: unknown, ...more: unknown[]) => unknown

/** From now on this process does not remove the sockets at `paths`. Returns what ends that for one of them, when it listens there. */
export function spareNames(paths: Iterable<string>): (path: string) => void {
  const spared = new Set([...paths].map((path) => resolve(path)))
  if (spared.size === 0) return () => {}
  const isSpared = (path: unknown) => {
    const named = path instanceof URL && path.protocol === 'file:' ? fileURLToPath(path) : path
    return typeof named === 'string' && spared.has(resolve(named)) && fs.existsSync(named)
  }
  const undo = [
    replace(fs.promises, ['unlink', 'rm'], isSpared, async () => {}),
    replace(fs, ['unlinkSync', 'rmSync'], isSpared, () => {}),
    replace(fs, ['unlink', 'rm'], isSpared, (more) => {
      const heard = more.at(-1)
      if (typeof heard === 'function') process.nextTick(heard, null)
    }),
  ]
  syncBuiltinESMExports() // for `import { unlinkSync } from 'node:fs'`
  return (path) => {
    if (!spared.delete(resolve(path)) || spared.size > 0) return
    for (const one of undo) one()
    syncBuiltinESMExports()
  }
}

/** Returns what puts the original functions back. */
function replace(
  where: object,
  names: readonly string[],
  isSpared: (path: unknown) => boolean,
  answer: (more: unknown[]) => unknown,
): () => void {
  const own = where as Record<string, Remove>
  const undo = names.map((name) => {
    const original = own[name] as Remove
    const replaced: Remove = (path, ...more) =>
      isSpared(path) ? answer(more) : Reflect.apply(original, where, [path, ...more])
    own[name] = Object.assign(replaced, original)
    return () => {
      if (own[name] === replaced) own[name] = original
    }
  })
  return () => {
    for (const one of undo) one()
  }
}
