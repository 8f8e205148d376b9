// A program of the kit's own sources in chunks: what a start reads, and what the first import of a chunk gives.

import { execFile } from 'node:child_process'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { bundle } from '../deploy/make/bundle.ts'
import { DEFAULT_ENTRY, definitions } from '../deploy/make/release.ts'
import { equal, is, ok } from './assert.ts'
import { temporary } from './lab/temporary.ts'
import { suite } from './suite.ts'

const exec = promisify(execFile)
/** what V8 scans before the first line of the reference service runs: 470,506 bytes before there were chunks */
const FIRST_MAX_BYTES = 62_000

const test = suite('chunks')

test('a start reads little of the program, and no module is in it twice', async () => {
  const texts: Record<string, string> = {}
  const script = await bundle({ entry: DEFAULT_ENTRY, define: definitions('beacon', 'v1.0.0'), texts })
  ok(script.length <= FIRST_MAX_BYTES, `expected at most ${FIRST_MAX_BYTES} bytes, got ${script.length}`)
  const all = [script.toString(), ...Object.values(texts)].join('\n')
  ok(/^[\0-\x7f]*$/.test(all.replaceAll(/\/\*![^]*?\*\//g, '')), 'an executable reads its texts as Latin 1')
  const messages = [
    'the request body was already consumed before the request reached the agent', // of what serves
    'the next operation found it unfinished', // of an operation, which both the service and the command line load
    'use the system-wide install (the default for root)', // of the command line
  ]
  for (const message of messages) is(all.split(message).length - 1, 1, message)
})

test('the first import of a chunk compiles it: whatever stands in it, a CommonJS package too, and again if it failed', async () => {
  await using folder = await temporary('chunks')
  const files = {
    'package.cjs': `exports.Agent = class { name = 'agent' }; exports.plain = () => this === undefined`,
    'odd.ts': `export const odd = ['*/', /a*/.source, '\\u2028 \\\\ \\" \${0}', (function () { return this })()]; export { shared } from './shared.ts'`,
    'shared.ts': `export const shared = { loads: (globalThis.loads = (globalThis.loads ?? 0) + 1) }`,
    'fails.ts': `if ((globalThis.tries = (globalThis.tries ?? 0) + 1) === 1) throw new Error('the first time'); export const tries = globalThis.tries`,
    'main.ts': `async function run() {
      const { odd, shared } = await import('./odd.ts')
      const { shared: again } = await import('./shared.ts')
      const { Agent } = await import('./package.cjs')
      const first = await import('./fails.ts').catch(({ message }) => message)
      const { tries } = await import('./fails.ts')
      const { basename } = await import('node:path')
      console.log(JSON.stringify([odd, shared === again, shared.loads, new Agent().name, first, tries, basename('a/b')]))
    }
    void run()
    export const given = () => import('./odd.ts')`,
  }
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder.path, name), text)
  for (const minify of [true, false]) {
    const script = join(folder.path, `script-${minify}.cjs`)
    await writeFile(script, await bundle({ entry: join(folder.path, 'main.ts'), define: {}, minify }))
    const { stdout } = await exec(process.execPath, [script])
    ok(
      (await exec(process.execPath, ['-p', `Object.keys(require(${JSON.stringify(script)}))`])).stdout.includes(
        'given',
      ),
    )
    const odd = ['*/', 'a*', '\u2028 \\ " ${0}', null] // a module is strict: `this` of a plain call is undefined
    equal(JSON.parse(stdout), [odd, true, 1, 'agent', 'the first time', 2, 'b'])
  }
})

test("an author's program is not split: its packages may be of the old kind, which is not strict", async () => {
  await using folder = await temporary('chunks')
  await writeFile(
    join(folder.path, 'old.js'),
    `undeclared = 'kept'; with ({ within: undeclared }) exports.kept = within`,
  )
  await writeFile(join(folder.path, 'main.ts'), `import { kept } from './old.js'; process.stdout.write(kept)`)
  const script = join(folder.path, 'script.cjs')
  await writeFile(script, await bundle({ entry: join(folder.path, 'main.ts'), define: {}, authors: true }))
  is((await exec(process.execPath, [script])).stdout, 'kept')
})

test.run()
