// GitHub's REST API at any base URL, for publishing. Must hold: the token is sent only to the API and its upload host, and appears in
// no message.

import { BatonError } from '../../agent/words.ts'

const TIMEOUT_MS = 60_000
/** for an asset, whose upload may be slow */
const UPLOAD_MS = 30 * 60_000

export type GitHub = ReturnType<typeof openGitHub>

export function openGitHub(api: string, environment: NodeJS.ProcessEnv) {
  const names =
    api === 'https://api.github.com' ? ['GH_TOKEN', 'GITHUB_TOKEN'] : ['GH_ENTERPRISE_TOKEN', 'GITHUB_ENTERPRISE_TOKEN']
  const token = names.map((name) => environment[name]?.trim()).find((text) => text) ?? null
  /** `body`: a string is JSON, bytes are an asset. Throws BatonError check_failed for every answer but a success or 404. */
  const ask = async (method: string, url: string, body: Uint8Array | string | null = null): Promise<Response> => {
    const { host, pathname, origin } = new URL(url)
    const isOurs = origin === new URL(api).origin || host === `uploads.${new URL(api).host.replace(/^api\./, '')}`
    const isAsset = body !== null && typeof body !== 'string'
    const answer = await fetch(url, {
      method,
      headers: {
        accept: 'application/vnd.github+json',
        'user-agent': 'baton',
        ...(body === null ? {} : { 'content-type': isAsset ? 'application/octet-stream' : 'application/json' }),
        ...(token !== null && isOurs ? { authorization: `Bearer ${token}` } : {}),
      },
      ...(body === null ? {} : { body: isAsset ? new Uint8Array(body) : body }),
      signal: AbortSignal.timeout(isAsset ? UPLOAD_MS : TIMEOUT_MS),
    }).catch((cause: unknown) => {
      throw new BatonError('check_failed', `${method} \`${host}${pathname}\``, { cause })
    })
    if (answer.ok || answer.status === 404) return answer
    const hint =
      answer.status === 401 || answer.status === 403
        ? { hint: `set ${names.join(' or ')} to a token with write access` }
        : {}
    throw new BatonError(
      'check_failed',
      `${method} \`${host}${pathname}\` failed with HTTP status ${answer.status}${await reasonIn(answer)}`,
      hint,
    )
  }
  return { token, ask }
}

const REASON_MAX = 300

/** What the API says of a refusal, for the end of a message; '' if nothing can be read of it. Reads no more than the answer's first bytes. */
async function reasonIn({ body }: Response): Promise<string> {
  const reader = body?.getReader()
  try {
    const { value } = (await reader?.read()) ?? {}
    const said = JSON.parse(Buffer.from(value ?? []).toString()) as {
      message?: unknown
      errors?: { message?: unknown }[]
    }
    const errors = Array.isArray(said.errors) ? said.errors.map((one) => one.message) : []
    const texts = [said.message, ...errors].filter((text) => typeof text === 'string')
    return texts.length === 0 ? '' : `: ${texts.join('; ').slice(0, REASON_MAX)}`
  } catch {
    return ''
  } finally {
    await reader?.cancel().catch(() => {})
  }
}
