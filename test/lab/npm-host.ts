// A host with systemd, and a registry of packages in its network, for `deploy-npm.sh`.

import { join } from 'node:path'
import { PROJECT } from '../../deploy/make/place.ts'
import { packedKit } from '../pack/main.ts'
import { compiledOnce } from './managed.ts'
import { type NpmRegistry, type Package, publishPackage, startRegistry } from './npm-registry.ts'
import { bootHost, type Host, type Ran } from './systemd.ts'
import { temporary } from './temporary.ts'

export const DEPLOY_NPM = join(PROJECT, 'deploy/deploy-npm.sh')

/** A service as somebody writes it who has never heard of Baton. */
export const GREETER = (word: string) => `#!/usr/bin/env node
const { appendFileSync, readFileSync } = require('node:fs')
const { join } = require('node:path')
const file = join(process.env.STATE_DIRECTORY ?? '.', 'visits')
require('node:http').createServer((request, response) => {
  if (request.url === '/visit') appendFileSync(file, 'x')
  let visits = 0
  try { visits = readFileSync(file).length } catch {}
  response.end('${word} ' + visits)
}).listen(process.env.PORT ?? 8000, process.env.HOST)
`

export function greeter(version: string, more: Partial<Package> = {}): Package {
  return {
    name: 'greeter',
    version,
    files: { 'bin/greeter.js': GREETER(version) },
    manifest: { bin: { greeter: 'bin/greeter.js' }, license: 'MIT' },
    ...more,
  }
}

export interface NpmHost extends AsyncDisposable {
  host: Host
  folder: string
  registry: NpmRegistry
  env: Record<string, string>
  deploy(...args: string[]): Promise<Ran & { end: Record<string, unknown> }>
  /** runs it until a condition of the shell is met, and kills it and its children then; /tmp/said has what it has printed */
  killed(when: string, ...args: string[]): Promise<void>
  publish(one: Package): Promise<void>
  says(path?: string): Promise<string>
}

/** A host, and a registry in its network. With an `upstream`, another registry, that is this machine's network. */
export async function bootNpmHost({ upstream }: { upstream?: string } = {}): Promise<NpmHost> {
  await using scope = new AsyncDisposableStack()
  const folder = scope.use(await temporary('registry')).path
  const host = scope.use(await bootHost(upstream === undefined ? {} : { netns: '.' }))
  const of = upstream === undefined ? { prefix: await host.network() } : { upstream }
  const registry = scope.use(await startRegistry(folder, of))
  const kit = await packedKit()
  const certificates = process.env['NODE_EXTRA_CA_CERTS']
  const env = {
    npm_config_registry: registry.url,
    ...compiledOnce(),
    ...(certificates === undefined ? {} : { NODE_EXTRA_CA_CERTS: certificates }),
  }
  const commandOf = ([word = '', ...args]: string[]) => [DEPLOY_NPM, word, '--json', '--kit', kit, ...args]
  const kept = scope.move()
  return {
    host,
    folder,
    registry,
    env,
    publish: async (one) => await publishPackage(folder, one),
    async deploy(...args) {
      const ran = await host.run(commandOf(args), { env, timeoutMs: 600_000 })
      const last = ran.stdout.trim().split('\n').at(-1) ?? ''
      return { ...ran, end: JSON.parse(last.startsWith('{') ? last : '{}') as Record<string, unknown> }
    },
    async killed(when, ...args) {
      const text = `setsid "$@" >/tmp/said 2>&1 & p=$!
while kill -0 $p 2>/dev/null; do if ${when}; then kill -9 -$p; wait $p; exit 9; fi; sleep 0.05; done`
      const { code } = await host.run(['sh', '-c', text, 'sh', ...commandOf(args)], { env, timeoutMs: 300_000 })
      if (code !== 9) throw new Error(`it ended before \`${when}\`: ${await host.ok('cat', '/tmp/said')}`)
    },
    says: async (path = '/') => (await host.run(['curl', '-fsS', `http://127.0.0.1:8123${path}`])).stdout,
    [Symbol.asyncDispose]: async () => await kept.disposeAsync(),
  }
}
