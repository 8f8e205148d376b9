// The environment file of an install without systemd: the service gets it, and so does what a command of the operator's runs on its data.

import { chmod, readFile, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { serviceEnvironment } from '../deploy/host/boundary/environment.ts'
import { parseEnvironmentFile } from '../deploy/host/place/environment-file.ts'
import { equal, is, match, not, ok } from './assert.ts'
import { stranger } from './fixtures/stranger.ts'
import { temporary } from './lab/temporary.ts'
import { suite } from './suite.ts'

const test = suite('host environment', { timeoutMs: 120_000 })
const asRoot = suite('host environment: as root', { skip: process.geteuid?.() === 0 ? null : 'needs root' })

const SHELL = { SECRET: 'of-the-shell' }
const TEXT = `
import { createServer } from 'node:http'
createServer((_, response) => response.end(process.env.SECRET + ' ' + process.env.ONLY)).listen(process.env.PORT)
`
const node = (script: string) => [process.execPath, '-e', script, '{file}']
const FS = "process.getBuiltinModule('fs')"
/** each says by which secret it has worked; `restore` does what the file `fails` in the state directory says */
const SNAPSHOT = {
  command: node(`${FS}.writeFileSync(process.argv[1], 'by ' + process.env.SECRET)`),
  restore: node(
    `if (${FS}.existsSync('fails')) { console.error('it is locked'); process.exit(1) }; ${FS}.writeFileSync('restored', 'by ' + process.env.SECRET)`,
  ),
}

test('the supervision reads it at each start and at `restart`; it wins over the shell, and counts only if nobody else can write it', async () => {
  await using it = await stranger({ text: TEXT, environment: SHELL })
  const file = join(dirname(it.home.configPath), 'environment')
  const log = async () => await readFile(join(it.home.stateDirectory, 'run/shop.log'), 'utf8')
  is(await it.get('/'), 'of-the-shell undefined')
  await writeFile(file, '# of this host\nSECRET="of the file"\nONLY=here\n', { mode: 0o600 })
  is((await it.typed('restart')).exitCode, 0)
  is(await it.get('/'), 'of the file here')
  await chmod(file, 0o620)
  is((await it.typed('restart')).exitCode, 0)
  is(await it.get('/'), 'of-the-shell undefined')
  match(await log(), /warning: \S+environment is ignored: other users can write to it/)
  await chmod(file, 0o600)
  is((await it.typed('stop')).exitCode, 0)
  is((await it.typed('start')).exitCode, 0)
  is(await it.get('/'), 'of the file here')
  await rm(file)
  is((await it.typed('restart')).exitCode, 0)
  is(await it.get('/'), 'of-the-shell undefined')
  not(/of the file/.test(await log()))
  is((await it.typed('stop')).exitCode, 0)
})

asRoot(
  'root starts it, and runs its words, with the `HOME` of its user, as systemd would; its environment file wins',
  async () => {
    const homeOf = async (user: string) => (await serviceEnvironment('shop', false, '/nowhere', user, {}))['HOME']
    is(await homeOf('root'), '/root')
    is(await homeOf('nobody'), '/nonexistent')
    is(await homeOf('nobody-of-that-name'), undefined)
    await using made = await temporary('environment')
    const file = join(made.path, 'environment')
    await writeFile(file, 'HOME=/srv\n', { mode: 0o600 })
    is((await serviceEnvironment('shop', false, file, 'root', {}))['HOME'], '/srv')
  },
)

test.long('`state restore` works by it too; each of its hints names what works', async () => {
  await using it = await stranger({ text: TEXT, config: { snapshot: SNAPSHOT }, environment: SHELL })
  const { stateDirectory } = it.home
  await writeFile(join(dirname(it.home.configPath), 'environment'), "SECRET='of the file'\n", { mode: 0o600 })
  is((await it.typed('restart')).exitCode, 0)
  await it.release('v1.1.0', TEXT)
  const { copies = [], error } = await it.operate('/admin/update', { tag: 'v1.1.0' })
  equal([copies.length, error], [1, null])
  const name = copies[0]?.name ?? ''
  const restored = async (copy: string) => {
    const { exitCode, stdout, stderr } = await it.typed('state', 'restore', copy)
    return { code: exitCode, said: stdout + stderr }
  }
  const running = await restored(name)
  is(running.code, 7)
  match(running.said, /hint: run `\S*shop stop`, then this command again/)
  ok(!running.said.includes('--restore-state'), running.said)
  is((await it.typed('stop')).exitCode, 0)
  await writeFile(join(stateDirectory, 'fails'), '')
  const failed = await restored(name)
  is(failed.code, 7, failed.said)
  match(failed.said, /saying "it is locked"; it is unknown whether that command changed anything/)
  const [, aside = ''] = /`\S*shop state restore (dump\.\S+)` brings back the previous data/.exec(failed.said) ?? []
  is(await readFile(join(stateDirectory, 'update/aside', aside), 'utf8'), 'by of the file')
  await rm(join(stateDirectory, 'fails'))
  const back = await restored(aside)
  is(back.code, 0, back.said)
  is(back.said.split(aside).length, 2, `named once: ${back.said}`)
  is(await readFile(join(stateDirectory, 'restored'), 'utf8'), 'by of the file')
})

test('it is read as systemd reads it', () => {
  const text = `# c=1
; d=1
A=plain # no comment\u0020\u0020
 B = "two words"
C='it''s $HOME \\n'
D=it's "q"
E="a\\"b\\\\c\\$d\\e"
F=one\\
two
G="x
y"
export H=1
I=
J=a\\ b\\\\
K=p=q\r
neither
# goes on \\
L=hidden
M="a" "b"c`
  equal(parseEnvironmentFile(text), {
    A: 'plain # no comment',
    B: 'two words',
    C: 'its $HOME \\n',
    D: 'it\'s "q"',
    E: 'a"b\\c$d\\e',
    F: 'onetwo',
    G: 'x\ny',
    I: '',
    J: 'a b\\',
    K: 'p=q',
    M: 'abc',
  })
  equal(parseEnvironmentFile('A="open\\'), { A: 'open' })
})

test.run()
asRoot.run()
