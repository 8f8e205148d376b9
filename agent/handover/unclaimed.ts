// What was held for a start that its application has not listened on. If that is the port of the configuration, the application has
// asked, in a way that this process does not see, whether its port is free, and went on to another one. Nobody would find it there.

import { EXIT } from '../words/errors.ts'
import { ownStart } from '../own.ts'
import type { Listener } from '../sockets/listeners.ts'

/** `keys`: what was let go. If the configured port is among them and this process has none of its number, it ends, to be started without. */
export function endIfMissed(keys: readonly string[], listeners: readonly Listener[]): void {
  const wanted = (ownStart()?.configuration?.listen ?? []).map(({ port = 0 }) => `:${port}`)
  const isIn = (port: string, some: readonly string[]) => some.some((key) => key.endsWith(port))
  const found = listeners.map(({ key }) => key)
  const missed = wanted.find((port) => isIn(port, keys) && !isIn(port, found))
  if (missed === undefined || found.length === 0) return
  process.stderr.write(
    `baton: expected it to listen on port ${missed.slice(1)}, which was held for it, found ${found.join(', ')}: it ends, and its next start finds that port free\n`,
  )
  process.exit(EXIT.unexpected)
}
