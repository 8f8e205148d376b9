// Writes what stands around a package: its manifest, the file that starts it after the agent, and its baton.config.json. Pure.

import { posix } from 'node:path'
import { BatonError } from '../../agent/words.ts'
import type { Recipe } from './recipe.ts'
import type { ServiceRecord } from './workshop.ts'

export const AROUND = 'baton.server.mjs'

/** Of the folder that is built in. `version`: exactly this one. */
export function manifestOf(service: string, recipe: Recipe, version: string): Record<string, unknown> {
  const { overrides } = recipe
  return {
    name: `${service}-from-npm`,
    private: true,
    dependencies: { [recipe.package]: version, ...recipe.with },
    ...(Object.keys(overrides).length === 0 ? {} : { overrides }),
  }
}

/** The file of the package that starts it, as a path inside it. Throws BatonError invalid_settings if that is not said, or no place in it. */
export function mainOf(recipe: Recipe, manifest: { name?: unknown; bin?: unknown; main?: unknown }): string {
  const { bin } = manifest
  const short = recipe.package.split('/').at(-1) ?? ''
  const all = typeof bin === 'string' ? { [short]: bin } : ((bin ?? {}) as Record<string, unknown>)
  const names = Object.keys(all)
  const isOne = new Set(Object.values(all).map((path) => posix.normalize(String(path)))).size === 1
  const name = recipe.bin ?? (isOne ? names[0] : short)
  const file = recipe.module ?? (name === undefined ? undefined : all[name])
  const hint = 'specify the command with `bin` or `module` in a recipe (`--recipe FILE`)'
  if (typeof file !== 'string')
    throw new BatonError(
      'invalid_settings',
      names.length === 0
        ? `the package ${recipe.package} has no command (\`bin\`)`
        : `cannot tell which command of ${recipe.package} to run; it has ${names.slice(0, 10).join(', ')}`,
      { hint },
    )
  const path = posix.normalize(file)
  if (path.startsWith('/') || path.split('/').includes('..') || path.includes('\0'))
    throw new BatonError('refused', `expected a command inside ${recipe.package}, got ${JSON.stringify(file)}`)
  return path
}

/** `file`: inside node_modules. */
export function aroundText(recipe: Recipe, file: string): string {
  const { files, listensAt, port } = recipe
  const lines = [
    `// Starts ${recipe.package}, with the agent loaded first. Written by deploy-npm.sh.`,
    `import 'baton-kit/auto'`,
    `import { runMain } from 'node:module'`,
    `import { join } from 'node:path'`,
  ]
  if (Object.keys(files).length > 0)
    lines.push(
      `import { existsSync, mkdirSync, writeFileSync } from 'node:fs'`,
      `import { dirname } from 'node:path'`,
      `const { STATE_DIRECTORY = '.', HOST = '127.0.0.1', PORT = '' } = process.env`,
      `const given = { '{stateDirectory}': STATE_DIRECTORY, '{host}': HOST, '{port}': PORT }`,
      `for (const [name, text] of Object.entries(${JSON.stringify(files)})) {`,
      `  const path = join(STATE_DIRECTORY, name)`,
      `  if (existsSync(path)) continue`,
      `  mkdirSync(dirname(path), { recursive: true })`,
      `  writeFileSync(path, text.replaceAll(/\\{(stateDirectory|host|port)\\}/g, (word) => given[word]), { mode: 0o600 })`,
      `}`,
    )
  if (listensAt === 'given-host' || port !== null) {
    const asGiven = port === null ? '' : `Number(port) === ${port} ? [process.env.PORT, process.env.HOST] : `
    lines.push(
      `import { Server } from 'node:net'`,
      `const { listen } = Server.prototype`,
      `const ofHost = (host) => host == null || ['', '0.0.0.0', '::'].includes(host) ? process.env.HOST : host`,
      `const placeOf = (port, host) => ${asGiven}[port, ${listensAt === 'given-host' ? 'ofHost(host)' : 'host'}]`,
      `Server.prototype.listen = function (first, ...rest) {`,
      `  if (['number', 'string'].includes(typeof first) && String(Number(first)) === String(first)) {`,
      `    const host = typeof rest[0] === 'string' || rest[0] == null ? rest.shift() : null`,
      `    return listen.call(this, ...placeOf(first, host), ...rest)`,
      `  }`,
      `  if (first?.port === undefined || first.fd !== undefined) return listen.call(this, first, ...rest)`,
      `  const [port, host] = placeOf(first.port, first.host)`,
      `  return listen.call(this, { ...first, port, host }, ...rest)`,
      `}`,
    )
  }
  lines.push(`process.argv[1] = join(import.meta.dirname, 'node_modules', ${JSON.stringify(file)})`, `runMain()`)
  return `${lines.join('\n')}\n`
}

const ENVIRONMENT = { PORT: '{port}', HOST: '{host}', STATE_DIRECTORY: '{stateDirectory}', NODE_ENV: 'production' }

export function configOf(
  { service, args, shown }: Pick<ServiceRecord, 'service' | 'args' | 'shown'>,
  recipe: Recipe,
): Record<string, unknown> {
  const healthPath = recipe.healthPath ?? shown?.healthPath ?? null
  const database = recipe.database ?? shown?.database ?? null
  const cwd = recipe.cwd === 'app' ? 'app' : (shown?.cwd ?? 'keep')
  const all = [...recipe.args, ...args]
  return {
    service,
    entry: AROUND,
    order: recipe.order,
    basePath: '/_baton', // its own routes may begin with anything
    environment: { ...ENVIRONMENT, ...recipe.environment },
    ...(all.length === 0 ? {} : { args: all }),
    ...(recipe.nodeFlags.length === 0 ? {} : { nodeFlags: recipe.nodeFlags }),
    ...(healthPath === null ? {} : { healthPath }),
    ...(database === null ? {} : { database }),
    ...(cwd === 'keep' ? {} : { cwd }),
    ...(recipe.onStop === null ? {} : { onStop: recipe.onStop }),
    ...(recipe.longLivedPaths === null ? {} : { longLivedPaths: recipe.longLivedPaths }),
    ...(recipe.exclude.length === 0 ? {} : { exclude: recipe.exclude }),
  }
}
