// The engine's calls about images and registries.

import type { IncomingMessage } from 'node:http'
import type { Readable } from 'node:stream'
import { BatonError, reasonOf } from '../../../agent/words.ts'
import { tellsOfFullDisk } from '../../lib/refusal.ts'
import type { ImageInspection } from '../inspection.ts'
import { type Connection, engineStatusOf, linesIn } from './connection.ts'

export interface Platform {
  architecture: string
  os: string
}

export type OnProgress = (doneBytes: number, totalBytes: number) => void

export interface OnPull {
  progress: OnProgress
  /** aborts the pull */
  signal?: AbortSignal
}

const PULL_IDLE_MS = 5 * 60_000
const IMPORT_MS = 5 * 60_000

export function imageCalls({ call, ask, open }: Connection) {
  const query = (fields: Record<string, string>) => new URLSearchParams(fields).toString()
  return {
    image: async (reference: string) =>
      (await ask(`/images/${reference}/json`, { absent: 404 })) as ImageInspection | null,
    /** What the registry says about a tag, asked through the engine. Throws release_not_found, check_failed. */
    async distribution(reference: string, credentials: string | null) {
      try {
        const answer = (await ask(`/distribution/${reference}/json`, { credentials })) as {
          Descriptor: { digest: string }
          Platforms?: Platform[] | null
        }
        return { digest: answer.Descriptor.digest, platforms: answer.Platforms ?? [] }
      } catch (cause) {
        throw registryError(cause, reference)
      }
    },
    /** Pulls `repository` by tag or digest. Throws download_failed, or refused on a full disk, also for an error inside a 200 stream. */
    async pull(repository: string, tagOrDigest: string, credentials: string | null, { progress, signal }: OnPull) {
      const doing = `pulling ${repository}${tagOrDigest.includes(':') ? '@' : ':'}${tagOrDigest}`
      const options = { credentials, timeoutMs: PULL_IDLE_MS, ...(signal === undefined ? {} : { signal }) }
      try {
        const path = `/images/create?${query({ fromImage: repository, tag: tagOrDigest })}`
        await followPull(await open('POST', path, options), progress)
      } catch (cause) {
        if (engineStatusOf(cause) === 404) throw registryError(cause, `${repository}:${tagOrDigest}`)
        if (tellsOfFullDisk(reasonOf(cause))) {
          const hint = 'free up disk space where the container engine keeps its data'
          throw new BatonError('refused', `${doing}: ${reasonOf(cause)}`, { cause, hint })
        }
        throw new BatonError('download_failed', `${doing}: ${reasonOf(cause)}`, { cause })
      }
    },
    tag: async (image: string, repository: string, tag: string) =>
      void (await call('POST', `/images/${image}/tag?${query({ repo: repository, tag })}`)),
    untag: async (reference: string) => void (await call('DELETE', `/images/${reference}?noprune=1`, { absent: 404 })),
    /** Names of the images of this repository that are here, `repository:tag`. */
    async named(repository: string) {
      const filters = JSON.stringify({ reference: [repository] })
      const images = (await ask(`/images/json?${query({ filters })}`)) as { RepoTags?: string[] | null }[]
      return images.flatMap(({ RepoTags }) => RepoTags ?? []).filter((name) => name.startsWith(`${repository}:`))
    },
    /** Removes a name, and the image with its last one. Leaves an image that a container uses, and says so by false. */
    async removeImage(reference: string) {
      try {
        await call('DELETE', `/images/${reference}`, { absent: 404 })
        return true
      } catch (cause) {
        if (engineStatusOf(cause) === 409) return false
        throw cause
      }
    },
    /** Makes an image of one layer from a tar of files. */
    async importImage(repository: string, tag: string, upload: Readable) {
      const path = `/images/create?${query({ fromSrc: '-', repo: repository, tag })}`
      await followPull(await open('POST', path, { upload, timeoutMs: IMPORT_MS }), () => {})
    },
  }
}

function registryError(cause: unknown, reference: string): BatonError {
  const said = reasonOf(cause)
  const status = engineStatusOf(cause)
  if (status === 401 || status === 403 || /unauthorized|denied|no basic auth/i.test(said)) {
    return new BatonError('check_failed', `the registry denied access to ${reference}: ${said}`, {
      cause,
      hint: 'run `docker login` first',
    })
  }
  if (status === 404 || /manifest unknown|not found/i.test(said)) {
    return new BatonError('release_not_found', `there is no image ${reference}: ${said}`, {
      cause,
      hint: 'check the tag and the repository (`--image`); a private registry may need `docker login`',
    })
  }
  return new BatonError('check_failed', `asking the registry for ${reference} failed: ${said}`, {
    cause,
    hint: 'check that this host can reach the registry',
  })
}

interface PullMessage {
  id?: string
  status?: string
  error?: string
  errorDetail?: { message?: string }
  progressDetail?: { current?: number; total?: number }
}

/** Reads the stream to its end. Throws for an error in the stream, or if it was cut off. */
async function followPull(response: IncomingMessage, onProgress: OnProgress): Promise<void> {
  const layers = new Map<string, { current: number; total: number }>()
  for await (const line of linesIn(response)) {
    if (line.trim() === '') continue
    const message = JSON.parse(line) as PullMessage
    const wrong = message.errorDetail?.message ?? message.error
    if (wrong !== undefined) throw new Error(wrong)
    const { current = 0, total = 0 } = message.progressDetail ?? {}
    if (message.id === undefined || message.status !== 'Downloading' || total <= 0) continue
    layers.set(message.id, { current, total })
    const sums = [...layers.values()].reduce((sum, one) => ({
      current: sum.current + one.current,
      total: sum.total + one.total,
    }))
    onProgress(sums.current, sums.total)
  }
  if (!response.complete) throw new Error('the engine closed the connection in the middle of the pull')
}
