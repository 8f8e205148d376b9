// Answers that never end by themselves, and whose clients ask again: server-sent events, and the paths that the author names in
// `longLivedPaths`, such as a package's long polls. A switch waits for none of them.

import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import { ownRelease } from '../../own.ts'
import { responseOf } from '../../sockets/internals.ts'
import { isOfEvents } from '../carry/stream.ts'

/** a pattern has a path, and perhaps a query, of any host */
const ANYWHERE = 'http://localhost'

export function isEndless(socket: Socket): boolean {
  const response = responseOf(socket)
  return response !== null && (isOfEvents(response) || isNamed(response.req))
}

/** Whether the author names it. */
export function isNamedEndless(socket: Socket): boolean {
  const response = responseOf(socket)
  return response !== null && isNamed(response.req)
}

let patterns: URLPattern[] | null = null

function isNamed({ url = '', originalUrl = url }: IncomingMessage & { originalUrl?: string }): boolean {
  patterns ??= (ownRelease().longLivedPaths ?? []).flatMap(patternOf)
  return patterns.some((pattern) => pattern.test(originalUrl, ANYWHERE)) // a router of Express removes its own path from `url`
}

/** Ignores a pattern that is not valid: it must not prevent the next update. A build under an old Node cannot check patterns. */
function patternOf(text: string): URLPattern[] {
  try {
    return [new URLPattern(text, ANYWHERE)]
  } catch {
    return []
  }
}
