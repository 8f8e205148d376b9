// The `X-Registry-Auth` header from what `docker login` wrote: `auths` and the credential programs of `~/.docker/config.json`.
// Must hold: no credential is printed.

import { readFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { parsedJson } from '../../../agent/words.ts'
import { run } from '../../lib/shell.ts'
import { registryOf } from '../reference.ts'

interface DockerConfig {
  auths?: Record<string, { auth?: string; identitytoken?: string }>
  credsStore?: string
  credHelpers?: Record<string, string>
}

/** The header; null without a login to the registry of `repository`. */
export async function credentialsFor(repository: string, environment: NodeJS.ProcessEnv): Promise<string | null> {
  const config = await readConfig(environment)
  const registry = registryOf(repository)
  const helper = config.credHelpers?.[registry] ?? config.credsStore
  if (helper !== undefined && /^[A-Za-z0-9._-]+$/.test(helper)) {
    const { exitCode, stdout } = await run([`docker-credential-${helper}`, 'get'], {
      input: registry,
      allowFailure: true,
    })
    if (exitCode === 0) {
      const { Username: username, Secret: secret } = JSON.parse(stdout) as { Username: string; Secret: string }
      const token = username === '<token>'
      return header(
        token
          ? { identitytoken: secret, serveraddress: registry }
          : { username, password: secret, serveraddress: registry },
      )
    }
  }
  const entry = config.auths?.[registry] ?? config.auths?.[`https://${registry}`]
  if (entry === undefined) return null
  if (entry.identitytoken) return header({ identitytoken: entry.identitytoken, serveraddress: registry })
  const [username = '', password = ''] = Buffer.from(entry.auth ?? '', 'base64')
    .toString()
    .split(/:(.*)/s)
  return username === '' ? null : header({ username, password, serveraddress: registry })
}

async function readConfig(environment: NodeJS.ProcessEnv): Promise<DockerConfig> {
  const path = join(environment['DOCKER_CONFIG'] ?? join(homedir(), '.docker'), 'config.json')
  return parsedJson(await readFile(path, 'utf8').catch(() => '')) ?? {} // none: no login on this host
}

function header(value: Record<string, string>): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url')
}
