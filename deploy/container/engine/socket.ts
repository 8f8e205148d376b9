// Finds the engine's socket. Only local sockets: a deployment must not lose its connection to the engine halfway.

import { access } from 'node:fs/promises'
import { constants } from 'node:fs'
import { BatonError } from '../../../agent/words.ts'

export type EngineChoice = 'docker' | 'podman' | 'auto'

type Environment = Readonly<Record<string, string | undefined>>

/** Path of the first socket that is there and may be used. Throws BatonError unsupported_host. */
export async function findSocket(choice: EngineChoice, environment: Environment): Promise<string> {
  const candidates = candidateSockets(choice, environment)
  for (const path of candidates) {
    try {
      await access(path, constants.R_OK | constants.W_OK)
      return path
    } catch {
      // the next one
    }
  }
  throw new BatonError('unsupported_host', `found no usable engine socket at ${candidates.join(', ')}`, {
    hint: 'start Docker or `podman.socket`, run this as root or as a member of the `docker` group, or set DOCKER_HOST=unix://PATH',
  })
}

/** Pure. Throws BatonError unsupported_host for a DOCKER_HOST that is not a local socket. */
export function candidateSockets(choice: EngineChoice, environment: Environment): string[] {
  const named = { docker: environment['DOCKER_HOST'], podman: environment['CONTAINER_HOST'] }
  const runtime = environment['XDG_RUNTIME_DIR']
  const places = {
    docker: ['/var/run/docker.sock', ...(runtime ? [`${runtime}/docker.sock`] : [])],
    podman: ['/run/podman/podman.sock', ...(runtime ? [`${runtime}/podman/podman.sock`] : [])],
  }
  const of = (kind: 'docker' | 'podman'): string[] => {
    const url = named[kind]
    if (!url) return places[kind]
    if (url.startsWith('unix:///')) return [url.slice('unix://'.length)]
    throw new BatonError(
      'unsupported_host',
      `expected unix:///PATH in ${kind === 'docker' ? 'DOCKER_HOST' : 'CONTAINER_HOST'}, got ${url}`,
      {
        hint: 'run this on the machine where the engine runs',
      },
    )
  }
  if (choice !== 'auto') return of(choice)
  if (named.docker) return of('docker')
  return named.podman ? of('podman') : [...places.docker, ...places.podman]
}
