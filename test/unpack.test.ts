// Unpacking an application out of its executable: raced, killed, filled up, forbidden and attacked. Must hold everywhere: what starts is
// whole, and where nothing starts there is a reason.

import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import {
  chmod,
  chown,
  copyFile,
  link,
  lstat,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  symlink,
  utimes,
  writeFile,
} from 'node:fs/promises'
import { type AddressInfo, createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { ReleaseKind } from '../agent/words.ts'
import { archive } from '../deploy/make/archive.ts'
import { parseProject } from '../deploy/make/project.ts'
import { run } from '../deploy/lib/shell.ts'
import { gunzipSync } from 'node:zlib'
import { equal, is, match, not, ok, rejects, withCode } from './assert.ts'
import { pathsBelow } from './fixtures/evidence.ts'
import { freePort } from './fixtures/install.ts'
import { buildQuietly } from './fixtures/quiet-build.ts'
import { isLong, suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const FILES = 300
/** as in the types of older versions of Node: the text by which Node finds the place for the application in its own file */
const FUSED = `/** --sentinel-fuse ${['NODE_SEA_FUSE', 'fce680ab2cc467b6e072b8b5df1996b2'].join('_')} */\n`
const test = suite('unpack', { timeoutMs: 240_000 })

interface Place extends AsyncDisposable {
  /** directory of the executable */
  path: string
  executable: string
  home: string
}

let built: Promise<Made & { executable: string }> | null = null

// build.test.ts builds another executable twice in CI, and the kind `script` below packs the same files twice
test.long('two builds of one application are the same bytes', async () => {
  await using other = await temporary('unpack')
  is((await make(other.path)).sha256, (await madeOne()).sha256)
})

test('`--version` reads nothing of the application, and release.json announces the room that it unpacks to', async () => {
  await using it = await place()
  is((await run([it.executable, '--version'])).stdout, 'racer v1.0.0\n')
  equal(await readdir(it.path), ['racer'])
  is((await run([it.executable, '--prepare'], { env: bare(it) })).exitCode, 0)
  const [home = ''] = await readdir(it.home)
  const app = join(it.home, home, 'app')
  const entries = await readdir(app, { recursive: true, withFileTypes: true })
  const sizes = await Promise.all(entries.map((entry) => lstat(join(entry.parentPath, entry.name))))
  const blocks = sizes.map((found) => (found.isFile() ? Math.ceil(found.size / 4096) : found.isDirectory() ? 1 : 0))
  const { assets } = JSON.parse(await readFile(join((await madeOne()).directory, 'release.json'), 'utf8')) as {
    assets: { unpackedBytes: number }[]
  }
  is(await readFile(join(app, 'sea.d.ts'), 'utf8'), FUSED)
  const taken = (1 + blocks.reduce((sum, count) => sum + count)) * 4096
  equal(
    assets.map(({ unpackedBytes }) => unpackedBytes),
    [taken, taken],
  )
})

test('its own flags, environment and NODE_OPTIONS reach the application untouched; of the installer’s words it gets what it asked for', async () => {
  await using it = await place()
  const hook = join(it.path, 'hook.cjs')
  await writeFile(hook, 'globalThis.hooked = true')
  const env = { ...bare(it), NODE_OPTIONS: `--require=${hook}`, OWN: 'own' }
  const said = async (...args: string[]) =>
    JSON.parse((await run([it.executable, ...args], { env, cwd: it.path })).stdout) as Record<string, unknown>
  const plain = { OWN: 'own', PORT: null, told: false, hooked: true, isMain: true, execArgv: [], cwd: it.path }
  for (const own of [
    ['say', 'status', '--json'],
    ['say', '--version', '--config', '/nowhere'],
    ['say', '--', 'serve'],
  ])
    equal(await said(...own), { ...plain, argv: own })
  // two dashes give it any word
  equal(await said('--', 'say', 'upgrade'), { ...plain, argv: ['say', 'upgrade'] })

  const config = join(it.path, 'config.json')
  const password = 'a-password-of-the-installer'
  await writeFile(config, JSON.stringify({ listen: { port: 4711 }, dashboard: { password }, shop: { own: 1 } }))
  equal(await said('serve', '--config', config, 'more'), { ...plain, PORT: '4711', argv: ['say', 'more'] })
  await writeFile(config, `{ "dashboard": { "password": "${password}" }, oops`)
  const broken = await run([it.executable, 'serve', '--config', config], { env, allowFailure: true })
  is(broken.exitCode, 2)
  not(broken.stderr.includes(password))
})

for (const kind of ['bundle', 'script'] as const) {
  // of executables the first test compares two
  const register = kind === 'script' ? test : test.long
  register(
    `kind ${kind}: the same sources give the same bytes, and the application gets its own arguments`,
    async () => {
      await using one = await temporary('unpack')
      await using other = await temporary('unpack')
      const a = await make(one.path, kind)
      is(a.sha256, (await make(other.path, kind)).sha256, kind)
      const executable = await unzipped(a.directory, join(one.path, 'racer'))
      const env = { BATON_NODE: process.execPath }
      is((await run([executable, '--version'], { env })).stdout, 'racer v1.0.0\n')
      const said = JSON.parse((await run([executable, 'say', '--own'], { env })).stdout) as Record<string, unknown>
      equal([said['argv'], said['execArgv']], [['say', '--own'], []])
      is((await run([executable, 'stop', '--system'], { env, allowFailure: true })).exitCode, 7, 'there is no install')
    },
  )
}

test('a file whose name has a line end is refused by name: its record in the archive could be read as another path', async () => {
  const source = import.meta.filename
  for (const path of ['app/a\n20 path=../../b', 'app/a\rb']) {
    const { message } = await rejects(archive([{ path, source }]), withCode('invalid_settings'))
    match(message, /expected file names without line breaks in the release, got "app\/a/)
  }
})

test('sixteen that unpack at once make one folder, whole, and all of them start', async () => {
  await using it = await place()
  const said = await Promise.all(Array.from({ length: 16 }, () => run([it.executable], { env: bare(it) })))
  for (const { stdout } of said) is(stdout, `${FILES} files\n`)
  equal((await readdir(it.home)).length, 1)
})

test('killed before each kind of change of the disk, the next one starts the whole application, and removes what is stale', async () => {
  await using it = await place()
  const list = join(it.path, 'changes')
  const hook = join(it.path, 'hook.cjs')
  await writeFile(hook, KILL)
  const unpack = (killAt: number) => {
    const env = { ...bare(it), NODE_OPTIONS: `--require=${hook}`, KILL_AT: String(killAt), LIST: list }
    return run([it.executable, '--prepare'], { env, allowFailure: true })
  }
  is((await unpack(0)).exitCode, 0)
  const changes = (await readFile(list, 'utf8')).split('\n')
  ok(changes.length > FILES * 3, `${changes.length} changes`)
  // one file is written like the next: the first two and the last two of them (in CI one), the link, and all else
  const files = changes.flatMap((name, at) => (name === 'openSync' ? [at] : []))
  const [from = 0, last = 0] = isLong ? [files[2], files.at(-2)] : [files[1], files.at(-1)]
  const before = changes.keys().filter((at) => at < from || at >= last || changes[at] === 'symlinkSync')
  for (const at of before) {
    await rm(it.home, { recursive: true, force: true })
    is((await unpack(at + 1)).exitCode === 0, false, `${changes[at]}, ${at}`)
    is((await run([it.executable], { env: bare(it) })).stdout, `${FILES} files\n`, `after ${changes[at]}, ${at}`)
  }
  await rm(it.home, { recursive: true })
  await unpack(changes.indexOf('renameSync') + 1)
  const underWay = `.partial-${process.pid}-1`
  await mkdir(join(it.home, underWay))
  is((await readdir(it.home)).length, 2)
  const longAgo = new Date(Date.now() - 3_600_000)
  for (const name of await readdir(it.home)) await utimes(join(it.home, name), longAgo, longAgo)
  is((await run([it.executable], { env: bare(it) })).stdout, `${FILES} files\n`)
  equal((await readdir(it.home)).toSorted(), [underWay, await idOf()])
})

test('what a kill has left is removed though the next process has the pid of the one that was killed, as in a container', async () => {
  if (process.getuid?.() !== 0) return
  await using it = await place()
  const left = join(it.home, `.partial-1-${'a'.repeat(16)}`)
  await mkdir(left, { recursive: true })
  const longAgo = new Date(Date.now() - 3_600_000)
  await utimes(left, longAgo, longAgo)
  const first = ['unshare', '--pid', '--fork', '--mount-proc', it.executable] as const
  is((await run(first, { env: bare(it) })).stdout, `${FILES} files\n`)
  equal(await readdir(it.home), [await idOf()])
})

test('in a state directory, only the applications that were started last stay, and one that has written something', async () => {
  await using it = await place()
  await symlink('/tmp', it.home) // as in a container: nothing can be unpacked beside the executable
  const home = join(it.path, 'state', '.unpacked')
  const older = ['1', '2', '3', '4', '5', '6'].map((digit) => digit.repeat(16))
  for (const [day, name] of older.entries()) {
    for (const folder of ['app', 'tags']) await mkdir(join(home, name, folder), { recursive: true })
    for (const file of ['app/server.js', 'complete']) await writeFile(join(home, name, file), '')
    const wrote = new Date(Date.now() - 30 * 86_400_000)
    for (const file of ['app/server.js', 'complete']) await utimes(join(home, name, file), wrote, wrote)
    const started = new Date(wrote.getTime() + day * 86_400_000)
    await utimes(join(home, name, 'tags'), started, started)
  }
  await writeFile(join(home, '1'.repeat(16), 'app', 'notes.db'), 'rows')
  const env = { ...bare(it), STATE_DIRECTORY: join(it.path, 'state') }
  is((await run([it.executable], { env })).stdout, `${FILES} files\n`)
  const stay = [older[0], older[4], older[5], await idOf()].toSorted()
  equal((await readdir(home)).toSorted(), stay)
  is((await run([it.executable], { env })).stdout, `${FILES} files\n`)
  equal((await readdir(home)).toSorted(), stay)
})

test('killed at any instant of unpacking, the next one starts the whole application', async () => {
  await using it = await place()
  for (let i = 0; i < (isLong ? 6 : 3); i++) {
    const child = spawn(it.executable, ['--prepare'], { stdio: 'ignore', env: bare(it) })
    const gone = once(child, 'exit') // on a quiet machine it may be done before it is killed
    await sleep(30 + i * (isLong ? 25 : 50))
    child.kill('SIGKILL')
    await gone
    is((await run([it.executable], { env: bare(it) })).stdout, `${FILES} files\n`)
    const [whole = ''] = (await readdir(it.home)).filter((name) => /^[0-9a-f]{16}$/.test(name))
    if (i % 2 === 0) await rm(join(it.home, whole), { recursive: true }) // else it is found again
  }
})

test('a folder that others may write, a link, one of another user and one without our mark are refused, with the reason', async () => {
  const id = await idOf()
  const traps: [RegExp, (it: Place) => Promise<void>][] = [
    [
      /is writable by others \(777\)/,
      async (it) => {
        await mkdir(it.home)
        await chmod(it.home, 0o777)
      },
    ],
    [/is not a directory/, async (it) => await symlink('/tmp', it.home)],
    [/is not marked as completely unpacked/, async (it) => void (await mkdir(join(it.home, id), { recursive: true }))],
    [
      /is not a directory/,
      async (it) => {
        await mkdir(it.home)
        await symlink('/tmp', join(it.home, id))
      },
    ],
    ...(process.getuid?.() === 0
      ? ([
          [
            /belongs to user id 65534/,
            async (it) => {
              await mkdir(it.home)
              await chown(it.home, 65534, 65534)
            },
          ],
        ] as [RegExp, (it: Place) => Promise<void>][])
      : []),
  ]
  for (const [why, set] of traps) {
    await using it = await place()
    await set(it)
    const { exitCode, stderr } = await run([it.executable], { env: { ...bare(it), HOME: '/proc' }, allowFailure: true })
    is(exitCode, 7)
    match(stderr, why)
    match(stderr, /^hint: make one of these/m)
  }
})

test.long(
  'where the directory of the executable is not its to write, the state directory is, then the cache',
  async () => {
    if (process.getuid?.() !== 0) return
    await using it = await place()
    const state = join(it.path, 'state')
    await mkdir(state)
    await chown(state, 65534, 65534)
    await chmod(it.path, 0o755)
    const asNobody = (env: Record<string, string | undefined>) =>
      run(['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', it.executable], { env, allowFailure: true })
    is((await asNobody({ ...bare(it), HOME: '/nonexistent', STATE_DIRECTORY: state })).stdout, `${FILES} files\n`)
    ok((await readdir(join(state, '.unpacked'))).length === 1)
    const nowhere = await asNobody({ ...bare(it), HOME: '/nonexistent' })
    is(nowhere.exitCode, 7)
    match(nowhere.stderr, /EACCES/)
  },
)

test.long(
  'a full disk, a read-only one and one that runs no programs end with a reason, and leave nothing that could be started',
  async () => {
    if (process.getuid?.() !== 0) return
    await using it = await place()
    for (const [options, why] of [
      ['size=600k', /ENOSPC/],
      ['ro', /EROFS/],
      ['noexec', /is it mounted noexec/],
    ] as const) {
      // a mount of its own name space: nobody else sees it, and it goes with the process
      const script = `mkdir -p "$0" && mount -t tmpfs -o ${options},mode=755 none "$0" && shift 0; HOME=/proc exec "$1"`
      const said = await run(['unshare', '--mount', 'sh', '-c', script, it.home, it.executable], {
        env: bare(it),
        allowFailure: true,
      })
      is(said.exitCode, 7, said.stderr)
      match(said.stderr, why)
      not(said.stdout.includes('files'))
    }
  },
)

test('an install that cannot unpack, has no room for it, or whose address is taken fails before anything is left', async () => {
  await using it = await place()
  await using server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const damaged = join(it.path, 'damaged')
  const bytes = await readFile(it.executable)
  bytes[bytes.indexOf('297'.repeat(500))] = 0x38
  await writeFile(damaged, bytes, { mode: 0o755 })
  const almost = bytes.length + 33 * 1024 * 1024
  const cases: [string, number, RegExp, string?][] = [
    [
      damaged,
      await freePort(),
      /cannot unpack \S+ v1\.0\.0: the application inside this executable is damaged.*hint: download the executable again/s,
    ],
    [
      it.executable,
      port,
      new RegExp(
        `another program is already listening on 127\\.0\\.0\\.1:${port}\nhint: .*--listen 127\\.0\\.0\\.1:\\d+`,
      ),
    ],
    ...(process.getuid?.() === 0
      ? ([[it.executable, await freePort(), /its unpacked files/, `size=${almost}`]] as const)
      : []),
  ].map((one) => [...one] as [string, number, RegExp, string?])
  for (const [executable, at, why, disk] of cases) {
    const [home, feed] = [join(it.path, 'home'), join(it.path, 'feed')]
    for (const folder of [home, feed]) await mkdir(folder, { recursive: true })
    const words = ['install', '--user', '--no-service', '--prefix', join(home, 'opt'), '--feed', feed, '-y']
    const command = [executable, ...words, '--listen', `127.0.0.1:${at}`]
    // it is seen in its own mount namespace alone
    const script = `mount -t tmpfs -o ${disk} none "$0"; "$@" >&2; code=$?; cd "$0" && find . -type f; exit $code`
    const onDisk = ['unshare', '--mount', 'sh', '-c', script, home]
    const env = { ...bare(it), HOME: home, USER: undefined, XDG_CONFIG_HOME: undefined, XDG_DATA_HOME: undefined }
    const said = await run(disk === undefined ? command : [...onDisk, ...command], { env, allowFailure: true })
    not(said.exitCode === 0, said.stdout)
    match(said.stderr, why)
    const left = disk === undefined ? await pathsBelow(home) : said.stdout.split('\n').map((line) => line.slice(2))
    equal(
      left.filter((path) => path !== '' && !path.startsWith('.cache')),
      [],
    )
  }
})

const forbidding = suite('unpack: under a security module', {
  timeoutMs: 60_000,
  skip:
    spawnSync('python3', ['--version']).error === undefined ? null : 'needs Python, which asks the kernel to forbid it',
})

forbidding(
  'what a security module forbids, whatever the modes say, ends with a reason, and leaves nothing that could be started',
  async () => {
    for (const [right, why] of [
      [LANDLOCK.makeDirectory, /EACCES: permission denied, mkdir/],
      [LANDLOCK.makeFile, /EACCES: permission denied, open/],
      [LANDLOCK.remove, /EACCES: permission denied, rename/],
    ] as const) {
      await using it = await place()
      const command = ['python3', '-c', FORBID, String(right), it.executable]
      const said = await run(command, { env: { ...bare(it), HOME: '/proc' }, allowFailure: true })
      is(said.exitCode, 7, said.stderr)
      match(said.stderr, why)
      not(said.stdout.includes('files'))
      is((await run([it.executable], { env: bare(it) })).stdout, `${FILES} files\n`)
    }
  },
)

test.run()
forbidding.run()

// ---- parts

/** https://docs.kernel.org/userspace-api/landlock.html: rights that are taken away from a process and its children, root's too */
const LANDLOCK = { makeDirectory: 1 << 7, makeFile: 1 << 8, remove: 1 << 4 }
const FORBID = `
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    got = libc.syscall(number, *args)
    if got < 0: sys.exit(os.strerror(ctypes.get_errno()))
    return got
rules = call(444, ctypes.byref(ctypes.c_uint64(int(sys.argv[1]))), ctypes.c_size_t(8), ctypes.c_uint32(0))
call(157, 38, 1, 0, 0, 0) # prctl: no new privileges
call(446, rules, 0)
os.execv(sys.argv[2], sys.argv[2:])`

/** Loaded before the first code: it ends the process by SIGKILL before its change number KILL_AT, or lists them all. */
const KILL = `
const fs = require('node:fs')
const done = []
const names = ['mkdirSync', 'openSync', 'writeSync', 'fsyncSync', 'writeFileSync', 'symlinkSync', 'chmodSync', 'renameSync', 'rmSync']
const { writeFileSync } = fs
for (const name of names) {
  const real = fs[name]
  fs[name] = (...args) => {
    if (name !== 'openSync' || args[1] !== 'r') {
      done.push(name)
      if (done.length === Number(process.env.KILL_AT)) process.kill(process.pid, 'SIGKILL')
    }
    return real(...args)
  }
}
process.on('exit', () => writeFileSync(process.env.LIST, done.join('\\n')))`

interface Made {
  sha256: string
  directory: string
}

/** An application of many files that counts them. */
async function make(folder: string, kind: ReleaseKind = 'app'): Promise<Made> {
  const app = join(folder, 'app')
  await mkdir(join(app, 'data', 'deep'.repeat(30)), { recursive: true })
  for (let i = 0; i < FILES; i++)
    await writeFile(join(app, 'data', i % 2 === 0 ? 'deep'.repeat(30) : '.', `${i}.txt`), String(i).repeat(500))
  await symlink('1.txt', join(app, 'data', 'link'))
  await writeFile(join(app, 'sea.d.ts'), FUSED)
  // not an addon, but the kernel has to map it all the same
  const library = /\/\S*\/libm\.so\.6/.exec(await readFile('/proc/self/maps', 'utf8'))?.[0] ?? ''
  await copyFile(library, join(app, 'addon.node'))
  await writeFile(
    join(app, 'main.cjs'),
    `const { readdirSync, readFileSync } = require('node:fs'); const { join } = require('node:path')
     const { argv, execArgv, env } = process
     const { OWN = null, PORT = null } = env
     const told = JSON.stringify(env).includes('a-password')
     const own = { argv: argv.slice(2), execArgv, OWN, PORT, told, hooked: globalThis.hooked === true, isMain: require.main === module }
     const count = () => {
       const names = readdirSync(join(__dirname, 'data'), { recursive: true, withFileTypes: true }).filter((e) => e.isFile())
       return names.filter((e) => readFileSync(join(e.parentPath, e.name), 'utf8') === e.name.slice(0, -4).repeat(500)).length
     }
     console.log(argv[2] === 'say' ? JSON.stringify({ ...own, cwd: process.cwd() }) : count() + ' files')`,
  )
  const project = parseProject({ service: 'racer', entry: 'main.cjs', kind, args: ['say'] }, app)
  const { executable, directory } = await buildQuietly({ project, out: join(folder, 'out') })
  return { sha256: executable.sha256, directory }
}

/** The one that every test starts. */
async function madeOne(): Promise<Made & { executable: string }> {
  return await (built ??= buildOnce())
}

async function buildOnce(): Promise<Made & { executable: string }> {
  const folder = await mkdtemp(join(tmpdir(), 'baton-unpack-built-'))
  process.once('exit', () => execFileSync('rm', ['-rf', folder]))
  const made = await make(folder)
  return { ...made, executable: await unzipped(made.directory, join(folder, 'racer')) }
}

async function unzipped(directory: string, executable: string): Promise<string> {
  const [packed = ''] = (await readdir(directory)).filter((name) => name.endsWith('.gz'))
  await writeFile(executable, gunzipSync(await readFile(join(directory, packed))), { mode: 0o755 })
  return executable
}

async function place(): Promise<Place> {
  const { path, [Symbol.asyncDispose]: dispose } = await temporary('unpack')
  const executable = join(path, 'racer')
  await link((await madeOne()).executable, executable)
  return { path, executable, home: join(path, '.racer'), [Symbol.asyncDispose]: dispose }
}

async function idOf(): Promise<string> {
  await using it = await place()
  await run([it.executable, '--prepare'], { env: bare(it) })
  return (await readdir(it.home))[0] ?? ''
}

function bare(it: Place): Record<string, string | undefined> {
  return { HOME: it.path, STATE_DIRECTORY: undefined, XDG_CACHE_HOME: undefined }
}
