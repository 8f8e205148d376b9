// `npm run pack:check`: the package as it is packed, judged by publint and are-the-types-wrong, and imported on the Node that runs
// npm and on Node 26, as a module and by require. Must hold: what is judged is the packed file, never the folder.

import { checkPackage, createPackageFromTarballData } from '@arethetypeswrong/core'
import { existsSync } from 'node:fs'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { delimiter, dirname, join } from 'node:path'
import { publint } from 'publint'
import { formatMessage } from 'publint/utils'
import { provideNode } from '../../deploy/make/node.ts'
import { PROJECT } from '../../deploy/make/place.ts'
import { run } from '../../deploy/lib/shell.ts'
import { madeOnce } from '../fixtures/releases.ts'
import { temporary } from '../lab/temporary.ts'

const KIT = 'baton-kit'
/** A service that was started by hand asks itself, and ends. */
const SERVER = `
import '${KIT}/auto'
import { createServer } from 'node:http'
const server = createServer((request, response) => response.end('ok'))
server.listen(0, '127.0.0.1', async () => {
  const url = 'http://127.0.0.1:' + server.address().port
  const { status } = await fetch(url)
  const refused = await fetch(url + '/admin/update', { method: 'POST', headers: { authorization: 'Bearer none' } })
  console.log(status, refused.status, (await refused.json()).reason)
  process.exit()
})
`
/** Stopped in the middle of a request, beside an idle connection: that request ends well, and its hooks are awaited. */
const HOOKS = `
import { handOver, onStop, singleton } from '${KIT}/auto'
import { createServer } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
onStop(async () => { await sleep(300); console.log('flushed') })
singleton('jobs', () => console.log('begun'), async () => { await sleep(100); console.log('ended') })
handOver('counts', () => 1)
const server = createServer(async (request, response) => { await sleep(request.url === '/slow' ? 500 : 0); response.end('ok') })
server.listen(0, '127.0.0.1', async () => {
  const url = 'http://127.0.0.1:' + server.address().port
  await Promise.all([1, 2].map(async () => (await fetch(url)).text()))
  void fetch(url + '/slow').then(({ status }) => console.log(status))
  await sleep(100)
  process.kill(process.pid, 'SIGTERM')
})
`

export interface PackReport {
  file: string
  sizeBytes: number
  /** each a sentence; empty where the package is good */
  faults: string[]
  /** `<version of Node> <import|require> <name>`, of everything that was imported; and that it serves there */
  imported: string[]
}

/** Packs into `folder`. */
export async function packInto(folder: string): Promise<string> {
  const { stdout } = await run(['npm', 'run', '--silent', 'pack', '--', '--out', folder], { cwd: PROJECT })
  return join(folder, stdout.trim().split('\n').at(-1) ?? '')
}

/** Path of the package, packed once for all test processes. */
export async function packedKit(): Promise<string> {
  const folder = await madeOnce('kit', async (made) => void (await packInto(made)))
  const [name = ''] = await readdir(folder)
  return join(folder, name)
}

export async function checkPack(folder: string): Promise<PackReport> {
  const file = await packInto(folder)
  const packed = await readFile(file)
  const faults: string[] = []
  const { messages, pkg } = await publint({ pack: { tarball: new Uint8Array(packed).buffer }, strict: true })
  for (const message of messages) faults.push(`publint: ${formatMessage(message, pkg) ?? message.code}`)
  const analysis = await checkPackage(createPackageFromTarballData(new Uint8Array(packed)))
  if (!analysis.types) faults.push('are-the-types-wrong: the package has no types')
  else {
    // the command resolves names as Node does; `node10` has no `exports`, and no Node that is supported is one
    for (const problem of analysis.problems) {
      const node10 = 'resolutionKind' in problem && problem.resolutionKind === 'node10'
      if (!node10) faults.push(`are-the-types-wrong: ${JSON.stringify(problem).slice(0, 300)}`)
    }
  }
  const imported = await importAll(file, join(folder, 'app'), faults)
  faults.push(...(await brokenLinksBelow(join(folder, 'app', 'node_modules', KIT))))
  return { file, sizeBytes: packed.length, faults, imported }
}

/** Of the pages that are packed. */
async function brokenLinksBelow(folder: string): Promise<string[]> {
  const pages = (await readdir(folder, { recursive: true })).filter((path) => path.endsWith('.md'))
  const broken = pages.map(async (page) => {
    const text = await readFile(join(folder, page), 'utf8')
    const targets = [...text.matchAll(/\]\(([^)#\s]+)/g)].map(([, target = '']) => target)
    return targets
      .filter((target) => !/^[a-z]+:/.test(target) && !existsSync(join(folder, dirname(page), target)))
      .map((target) => `${page}: its link to ${target} leads nowhere`)
  })
  return (await Promise.all(broken)).flat()
}

async function importAll(file: string, folder: string, faults: string[]): Promise<string[]> {
  await run(['mkdir', '-p', folder])
  await writeFile(join(folder, 'package.json'), '{ "name": "app", "private": true }\n')
  await run(['npm', 'install', '--no-audit', '--no-fund', '--offline', file], { cwd: folder })
  const { exports } = JSON.parse(await readFile(join(PROJECT, 'package.json'), 'utf8')) as { exports: object }
  const names = Object.keys(exports).filter((name) => !name.endsWith('.json'))
  const host = await hostNode()
  const imported: string[] = []
  await writeFile(join(folder, 'server.mjs'), SERVER)
  await writeFile(join(folder, 'hooks.mjs'), HOOKS)
  for (const node of [host, await provideNode()]) {
    const version = (await run([node, '--version'])).stdout.trim()
    for (const name of names.map((one) => one.replace(/^\./, KIT))) {
      const forms = { import: `await import('${name}')`, require: `require('${name}')` }
      for (const [form, text] of Object.entries(forms)) {
        const program = form === 'import' ? ['--input-type=module', '-e', text] : ['-e', text]
        const { exitCode, stderr } = await run([node, ...program], { cwd: folder, allowFailure: true })
        if (exitCode === 0) imported.push(`${version} ${form} ${name}`)
        else faults.push(`${version}: ${text} ended with ${exitCode}: ${stderr.slice(0, 500)}`)
      }
    }
    const said = await run([node, 'server.mjs'], { cwd: folder, allowFailure: true, timeoutMs: 30_000 })
    if (said.stdout.trim().split('\n').at(-1) === '200 501 source') imported.push(`${version} serves, unmanaged`)
    else faults.push(`${version}: expected it to serve, unmanaged, got ${said.stdout}${said.stderr.slice(0, 500)}`)
    const ended = await run([node, 'hooks.mjs'], { cwd: folder, allowFailure: true, timeoutMs: 30_000 })
    const lines = ended.stdout.trim().split('\n')
    const told = lines.filter((line) => !/^baton: (?!warning)/.test(line)).toSorted()
    if (told.join(' ') === '200 begun ended flushed' && ended.exitCode === 0)
      imported.push(`${version} awaits its hooks`)
    else faults.push(`${version}: expected it to await its hooks, got ${told.join('; ')} ${ended.stderr.slice(0, 500)}`)
  }
  return imported
}

/** The Node of this machine, which may be the oldest that the package supports. npm puts this project's own in front of it. */
async function hostNode(): Promise<string> {
  const folders = (process.env['PATH'] ?? '').split(delimiter).filter((path) => !path.includes('node_modules'))
  const env = { PATH: folders.join(delimiter) }
  return (await run(['/bin/sh', '-c', 'command -v node'], { env })).stdout.trim()
}

if (import.meta.main) {
  await using made = await temporary('pack')
  const folder = made.path
  const { faults, imported, sizeBytes } = await checkPack(folder)
  for (const line of imported) process.stdout.write(`good ${line}\n`)
  for (const fault of faults) process.stdout.write(`bad  ${fault}\n`)
  process.stdout.write(
    `${(sizeBytes / 1e6).toFixed(1)} MB packed, ${imported.length} imports, ${faults.length} faults\n`,
  )
  process.exitCode = faults.length === 0 ? 0 : 1
}
