// Clients of Verdaccio: `npm publish` of a new package, and `npm view` of it, one after the other, each by npm as it is (it retries by
// itself). Until stdin ends; then every package that was published is fetched, and one line of JSON is printed.
// lost: npm commands that failed. doubled: not counted, a version is there once. missing: published packages whose file is not there.

import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

const CLIENTS = 2
const run = promisify(execFile)
const registry = `http://127.0.0.1:${process.env.PORT}/`
const home = await mkdtemp(join(tmpdir(), 'baton-npm-'))
const npmrc = join(home, '.npmrc')
const { token } = await register()
await writeFile(npmrc, `registry=${registry}\n${registry.slice('http:'.length)}:_authToken=${token}\n`)
const env = { ...process.env, npm_config_userconfig: npmrc, npm_config_registry: registry }
const notes = []
const published = []
let lost = 0
let working = true

process.stdin.resume().once('end', () => (working = false))
await Promise.all(Array.from({ length: CLIENTS }, (_, index) => work(index)))
let missing = 0
for (const name of published)
  if (!(await isThere(name))) {
    missing++
    notes.push(`${name} is not there`)
  }
await rm(home, { recursive: true, force: true })
const total = { done: published.length, lost, doubled: 0, missing, notes: notes.slice(0, 10) }
process.stdout.write(`${JSON.stringify(total)}\n`, () => process.exit())

async function work(client) {
  for (let number = 1; working; number++) {
    const name = `package-${client}-${number}`
    const folder = join(home, name)
    await mkdir(folder)
    await writeFile(join(folder, 'package.json'), JSON.stringify({ name, version: '1.0.0' }))
    try {
      await run('npm', ['publish'], { cwd: folder, env })
      published.push(name)
      const { stdout } = await run('npm', ['view', name, 'version'], { cwd: folder, env })
      if (stdout.trim() !== '1.0.0') throw new Error(`npm view ${name}: expected 1.0.0, got ${stdout}`)
      if (client === 0 && number === 1) process.stderr.write('working\n')
    } catch (error) {
      lost++
      notes.push(error.message.slice(0, 300))
    }
  }
}

async function register() {
  const body = JSON.stringify({ name: 'anybody', password: 'a password' })
  const headers = { 'content-type': 'application/json' }
  const address = new URL('-/user/org.couchdb.user:anybody', registry)
  const response = await fetch(address, { method: 'PUT', headers, body })
  if (!response.ok) throw new Error(`registering: ${response.status} ${await response.text()}`)
  return await response.json()
}

async function isThere(name) {
  const response = await fetch(new URL(name, registry))
  if (!response.ok) return false
  const { versions } = await response.json()
  return (await fetch(versions['1.0.0'].dist.tarball)).ok
}
