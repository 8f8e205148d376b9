// The verify stage with real executables: right ones, and each way in which one is not what it should be.

import { execFile } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chmod, mkdir, mkdtemp, open, readFile, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import { makeDisk } from '../agent/disk/disk.ts'
import type { BatonError } from '../agent/words/errors.ts'
import type { Release } from '../agent/words/release.ts'
import { makeVerify } from '../agent/update/steps/verify.ts'
import { refuseOtherWire } from '../agent/update/other-wire.ts'
import { DEPTH_MAX, installed, installedTag, runVersion } from '../agent/update/version.ts'
import * as assert from './assert.ts'
import { script } from './lab/dist.ts'
import { suite } from './suite.ts'

const test = suite('verify')

const A = 'a'.repeat(64)
const B = 'b'.repeat(64)

interface Lab extends AsyncDisposable {
  directory: string
  path: string
  /** verifies `content` as the executable of beacon v1.1.0 */
  verify(
    content: string | Buffer,
    change?: { assetSha256?: string; sha256?: string; sizeBytes?: number; timeoutMs?: number },
  ): Promise<void>
  /** the message it is refused with */
  failure(...parameters: Parameters<Lab['verify']>): Promise<string>
  /** whether a script has run `touch "$0.ran"` */
  ran(): Promise<boolean>
}

async function lab(): Promise<Lab> {
  const directory = await mkdtemp(join(tmpdir(), 'baton-verify-'))
  const path = join(directory, '.beacon.partial')
  const verify: Lab['verify'] = async (content, { timeoutMs, assetSha256 = A, ...change } = {}) => {
    await rm(path, { force: true })
    await writeFile(path, content, { mode: 0o600 })
    const bytes = Buffer.from(content)
    const executable = { sizeBytes: bytes.length, sha256: createHash('sha256').update(bytes).digest('hex'), ...change }
    const asset = {
      name: 'beacon-linux-x64.zst',
      url: '',
      sizeBytes: 1,
      sha256: A,
      compression: 'zstd',
      executable,
    } as const
    const release: Release = {
      tag: 'v1.1.0',
      notes: '',
      publishedAt: null,
      url: null,
      schema: null,
      asset,
      deltas: [],
      image: null,
    }
    const step = makeVerify({ service: 'beacon', disk: makeDisk(), ...(timeoutMs === undefined ? {} : { timeoutMs }) })
    await step({ path, assetSha256, [Symbol.asyncDispose]: () => Promise.resolve() }, release)
  }
  return {
    directory,
    path,
    verify,
    async failure(...parameters) {
      const error = (await assert.rejects(verify(...parameters), assert.withCode('verify_failed'))) as BatonError
      assert.match(error.message, /^verifying v1\.1\.0: /) // every error names its stage
      return error.message
    },
    ran: () =>
      stat(`${path}.ran`).then(
        () => true,
        () => false,
      ),
    [Symbol.asyncDispose]: () => rm(directory, { recursive: true, force: true }),
  }
}

test('takes an executable that has the sums and says the tag, and makes it one that can be run', async () => {
  await using it = await lab()
  await it.verify(script('beacon', 'v1.1.0'))
  assert.is((await stat(it.path)).mode & 0o777, 0o755)
})

test('refuses an asset with another sum, shows both in full, and does not run it', async () => {
  await using it = await lab()
  const message = await it.failure('#!/bin/sh\ntouch "$0.ran"\n', { assetSha256: B })
  assert.is(message, `verifying v1.1.0: sha256 of \`beacon-linux-x64.zst\`: expected ${A}, got ${B}`)
  assert.is(await it.ran(), false)
  assert.is((await stat(it.path)).mode & 0o777, 0o600)
})

test('refuses an executable of another size or sum than the release announces, and does not run it', async () => {
  await using it = await lab()
  const content = '#!/bin/sh\ntouch "$0.ran"\n'
  assert.match(await it.failure(content, { sizeBytes: 7 }), /size of the executable: expected 7, got 25$/)
  assert.match(await it.failure(content, { sha256: B }), /sha256 of the executable: expected b{64}, got [0-9a-f]{64}$/)
  assert.is(await it.ran(), false)
})

for (const [title, body, expected] of [
  ['says another version', 'echo beacon v1.2.0', /expected v1\.1\.0, got v1\.2\.0$/],
  ['says another service', 'echo other v1.1.0', /expected the service `beacon`, got `other`$/],
  [
    'says a version of its own, as plain Node does',
    'echo v26.10.0',
    /expected `<service> vX\.Y\.Z`, got "v26\.10\.0\\n"$/,
  ],
  ['says nothing', 'exit 0', /expected `<service> vX\.Y\.Z`, got ""$/],
  ['says more than that', 'echo beacon v1.1.0; echo and more', /got "beacon v1\.1\.0\\nand more\\n"$/],
  ['says what is no tag', 'echo beacon v1.1.0-rc-1', /got "beacon v1\.1\.0-rc-1\\n"$/],
  ['draws on the terminal', 'printf "beacon \\033[2Jv1.1.0\\n"', /got "beacon \\u001b\[2Jv1\.1\.0\\n"$/],
  ['never stops talking', 'yes', /expected one line of output, got much more$/],
  [
    'fails',
    'echo "cannot open libfoo.so" >&2; exit 127',
    /expected exit code 0, got 127 after printing: "cannot open libfoo\.so"$/,
  ],
  ['says the tag, and fails', 'echo beacon v1.1.0; exit 1', /expected exit code 0, got 1$/],
  ['dies', 'kill -SEGV $$', /it was killed by SIGSEGV$/],
  ['talks on stderr only', 'echo beacon v1.1.0 >&2', /got ""$/],
] as const) {
  test(`refuses an executable that ${title}`, async () => {
    await using it = await lab()
    assert.match(await it.failure(`#!/bin/sh\n${body}\n`), expected)
  })
}

test('one run tells the tag and the versions of the switch: the question before the swap starts nothing', async () => {
  await using it = await lab()
  await it.verify('#!/bin/sh\necho "$BATON_PREPARE" >>"$0.ran"\necho beacon v1.1.0\necho "[2, 3, \\"x\\"]" >&3\n')
  const runs = async () => (await readFile(`${it.path}.ran`, 'utf8')).split('\n').length - 1
  assert.is(await runs(), 2, 'its tag, and its unpacking')
  const error = await assert.rejects(
    refuseOtherWire({ serves: true, current: 'v1.0.0' }, it.path, 'v1.1.0', 'upgrade v1.1.0'),
    assert.withCode('refused'),
  )
  assert.match(error.message, /v\S+ supports different switch protocol versions \(2, 3\) than the running release/)
  assert.is(await runs(), 2)
  await writeFile(it.path, script('beacon', 'v1.1.0')) // another file is asked again
  assert.equal(await installed(it.path), { service: 'beacon', tag: 'v1.1.0', wires: null })
})

test('ends an executable that hangs, with whatever it has started', async () => {
  await using it = await lab()
  const started = performance.now()
  const body = '#!/bin/sh\nsleep 1000 &\necho $! >"$0.ran"\nsleep 1000\n'
  assert.match(await it.failure(body, { timeoutMs: 300 }), /it did not respond within 0\.3 s$/)
  assert.ok(performance.now() - started < 5_000)
  const pid = Number(await readFile(`${it.path}.ran`, 'utf8'))
  assert.ok(await gone(pid))
})

test('does not wait for what an executable leaves behind beyond the deadline', async () => {
  await using it = await lab()
  const body = '#!/bin/sh\nsleep 1000 &\necho $! >"$0.ran"\necho beacon v1.1.0\n'
  const started = performance.now()
  await it.verify(body, { timeoutMs: 20_000 })
  assert.ok(performance.now() - started < 10_000)
  const pid = Number(await readFile(`${it.path}.ran`, 'utf8'))
  if (process.getuid?.() === 0) process.kill(pid, 'SIGKILL') // root sends no signals to what it has left behind
  assert.ok(await gone(pid))
})

// ---- files that are no executable here ---------------------------------------------------------------------------

const ELF = Buffer.from('7f454c46020101000000000000000000020000000000000000000000', 'hex')

for (const [title, content, expected] of [
  ['empty', '', /the file is empty$/],
  [
    'of another processor',
    withMachine(process.arch === 'arm64' ? 0x3e : 0xb7),
    /exec format error: it was built for (arm64|x64), expected \w+$/,
  ],
  [
    'of a processor that we do not know',
    withMachine(0x1234),
    /exec format error: it was built for machine type 4660, expected/,
  ],
  [
    'of macOS',
    Buffer.from('cffaedfe0c000001000000000200000010000000', 'hex'),
    /exec format error: it was built for macOS$/,
  ],
  ['of Windows', 'MZ\u0090\0 This program cannot be run in DOS mode', /exec format error: it was built for Windows$/],
  // execvp(3) would hand this to /bin/sh
  [
    'a script that does not say of what',
    'touch "$0.ran"; echo beacon v1.1.0\n',
    /exec format error: it is not an executable for this platform$/,
  ],
  ['the head of one', ELF.subarray(0, 4), /exec format error/],
  [
    'a script for what is not on this host',
    '#!/nonexistent/interpreter\n',
    /its interpreter or loader is not on this host$/,
  ],
] as const) {
  test(`refuses a file that is ${title}, and does not run it`, async () => {
    await using it = await lab()
    assert.match(await it.failure(content), expected)
    assert.is(await it.ran(), false)
  })
}

for (const keep of [64, 4_096, 1_000_000]) {
  test(`refuses an executable of this very platform that was cut off after ${keep} bytes`, async () => {
    await using it = await lab()
    const own = await open(process.execPath)
    const bytes = Buffer.alloc(keep)
    await own.read(bytes, 0, keep, 0)
    await own.close()
    assert.match(await it.failure(bytes), /(it was killed by SIG|exec format error|exit code)/)
  })
}

test('says that a file is not executable, or not there', async () => {
  await using it = await lab()
  await writeFile(it.path, script('beacon', 'v1.1.0'), { mode: 0o644 })
  await assert.rejects(runVersion(it.path), /--version`: it is not executable$/)
  await assert.rejects(runVersion(`${it.path}.gone`), /ENOENT/)
  await mkdir(`${it.path}.folder`)
  await assert.rejects(runVersion(`${it.path}.folder`), /EISDIR/)
})

test('waits a moment for a file that somebody is writing still', async () => {
  await using it = await lab()
  await writeFile(it.path, script('beacon', 'v1.1.0'))
  await chmod(it.path, 0o755)
  const writing = await open(it.path, 'r+')
  const asking = runVersion(it.path)
  await sleep(120)
  await writing.close()
  assert.equal(await asking, { service: 'beacon', tag: 'v1.1.0', wires: null })
})

test('gives up on a file that somebody goes on writing', async () => {
  await using it = await lab()
  await writeFile(it.path, script('beacon', 'v1.1.0'))
  await chmod(it.path, 0o755)
  await using _writing = await open(it.path, 'r+')
  await assert.rejects(runVersion(it.path), /ETXTBSY/)
})

// ---- what it runs with -------------------------------------------------------------------------------------------

test('runs it with nothing of ours in its environment, in no directory of ours, and with nothing to read', async () => {
  await using it = await lab()
  await it.verify('#!/bin/sh\n{ env; pwd; cat; } >"$0.ran"\necho beacon v1.1.0\n')
  const lines = (await readFile(`${it.path}.ran`, 'utf8')).trimEnd().split('\n')
  const names = lines.filter((line) => line.includes('=')).map((line) => line.split('=')[0])
  // the second run is the one that prepares it: where it may unpack itself is all that it is told more
  const allowed = ['PWD', 'OLDPWD', 'SHLVL', '_', 'HOME', 'STATE_DIRECTORY', 'XDG_CACHE_HOME']
  assert.equal(names.filter((name) => !allowed.includes(name ?? '')).toSorted(), [
    'BATON_DEPTH',
    'BATON_PREPARE',
    'BATON_SAY_WIRES',
    'LC_ALL',
    'PATH',
  ])
  assert.ok(lines.includes('BATON_DEPTH=1'))
  assert.is(lines.at(-1), '/')
})

test('executables that run each other come to an end', async () => {
  await using it = await lab()
  await writeFile(it.path, '#!/bin/sh\ntouch "$0.ran"\necho beacon v1.1.0\n', { mode: 0o755 })
  const program = `import { runVersion } from ${JSON.stringify(new URL('../agent/update/version.ts', import.meta.url).href)}
    await runVersion(${JSON.stringify(it.path)}).then(({ tag }) => console.log(tag), (error) => console.log(error.message))`
  const ask = async (depth: number): Promise<string> => {
    const env = { ...process.env, BATON_DEPTH: String(depth) }
    const args = ['--input-type=module', '--eval', program]
    return (await promisify(execFile)(process.execPath, args, { env })).stdout.trim()
  }
  assert.is(await ask(DEPTH_MAX - 1), 'v1.1.0')
  await rm(`${it.path}.ran`)
  assert.match(await ask(DEPTH_MAX), /too many nested executables, each starting the next \(4 levels\)$/)
  assert.is(await it.ran(), false)
})

test('installedTag runs an executable once for each content, also when many ask', async () => {
  await using it = await lab()
  const counting = (tag: string): string => `#!/bin/sh\necho ran >>"$0.count"\necho beacon ${tag}\n`
  const runs = async (): Promise<number> => (await readFile(`${it.path}.count`, 'utf8')).split('\n').length - 1
  await writeFile(it.path, counting('v1.1.0'), { mode: 0o755 })
  assert.equal(await Promise.all([1, 2, 3, 4].map(() => installedTag(it.path))), Array(4).fill('v1.1.0'))
  assert.is(await installedTag(it.path), 'v1.1.0')
  assert.is(await runs(), 1)
  await rm(it.path)
  await writeFile(it.path, counting('v1.2.0'), { mode: 0o755 })
  assert.is(await installedTag(it.path), 'v1.2.0')
  assert.is(await runs(), 2)
})

test('installedTag asks again after a failure, and says where there is nothing', async () => {
  await using it = await lab()
  await writeFile(it.path, '#!/bin/sh\n[ -e "$0.good" ] || exit 3\necho beacon v1.1.0\n', { mode: 0o755 })
  await assert.rejects(installedTag(it.path), /expected exit code 0, got 3/)
  await writeFile(`${it.path}.good`, '')
  assert.is(await installedTag(it.path), 'v1.1.0')
  await assert.rejects(installedTag(`${it.path}.gone`), assert.withCode('verify_failed'))
})

function withMachine(machine: number): Buffer {
  const bytes = Buffer.from(ELF)
  bytes.writeUInt16LE(machine, 18)
  return bytes
}

async function gone(pid: number): Promise<boolean> {
  for (let tries = 0; tries < 200; tries++) {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
    if (stat === '' || /\) Z /.test(stat)) return true // a zombie is for its new parent to reap
    await sleep(10)
  }
  return false
}

test.run()
