// install.sh in the shells that it must work in, against real servers and folders. What it downloads is a script that says
// how it was called. Must hold: whatever goes wrong, nothing that was not verified is run, and nothing is left behind.

import { spawn, spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, rmSync } from 'node:fs'
import {
  chmod,
  chown,
  copyFile,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rm,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises'
import { createServer as createHttpServer, type RequestListener, type Server } from 'node:http'
import { createServer as createHttpsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { homedir, tmpdir } from 'node:os'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'
import { COMMANDS } from '../deploy/host/tree.ts'
import { bakeInstaller } from '../deploy/make/release-folder.ts'
import { isLong, suite } from './suite.ts'
import { equal, is, match, ok } from './assert.ts'
import { makeCertificate } from './lab/certificate.ts'
import { makeDist } from './lab/dist.ts'
import { releaseServer } from './lab/release-server.ts'
import { eventually } from './lab/systemd.ts'
import { temporary } from './lab/temporary.ts'

const SCRIPT = join(import.meta.dirname, '../install.sh')
const ALL_SHELLS = [['dash'], ['busybox', 'sh'], ['bash', '--posix']]
const SHELLS = ALL_SHELLS.filter(([shell = '']) => isHere(shell))
/** Reads lines of a number of bytes and a shell: runs that many bytes of script $1 in that shell, and says what they print. */
const CUT = `
  n=0
  while read -r at shell; do
    out=$(head -c "$at" "$1" | $shell -s -- install -y --feed /nowhere)
    [ -z "$out" ] || echo "$shell, cut at $at: $out"
    n=$((n + 1))
  done
  echo "$n cuts"`
const ASSET = `beacon-${process.platform}-${process.arch}.gz`
const isRoot = process.getuid?.() === 0

const test = suite('install: script', { timeoutMs: 60_000 })

/** Whether this machine has the program. */
function isHere(program: string): boolean {
  return spawnSync(program, ['--version'], { stdio: 'ignore' }).error === undefined
}

interface Ran {
  code: number
  stdout: string
  stderr: string
  /** what is left in its TMPDIR and HOME */
  left: string[]
}

/** of a server: the script fetches by curl, and by wget where there is no curl */
const fetching = suite('install: script, of a server', {
  timeoutMs: 60_000,
  skip: isHere('curl') && isHere('wget') ? null : 'needs curl and wget',
})
const checked = suite('install: script, read by shellcheck', { skip: isHere('shellcheck') ? null : 'needs shellcheck' })

checked('shellcheck has nothing to say', () => {
  for (const dialect of ['sh', 'dash']) {
    const { status, stdout } = spawnSync('shellcheck', ['-s', dialect, '-e', 'SC2317', SCRIPT], { encoding: 'utf8' })
    is(status, 0, stdout)
  }
})

checked.run()

for (const [shell = '', ...before] of ALL_SHELLS) {
  const inShell = suite(`install: script, in ${shell}`, { skip: isHere(shell) ? null : `needs ${shell}` })
  inShell('a shell that install.sh must work in says the usage', () => {
    const { status, stdout } = spawnSync(shell, [...before, SCRIPT, '--help'], { encoding: 'utf8' })
    is(status, 0)
    match(stdout, /install\.sh \[install\] \[TAG\|latest\]/)
    is((stdout.match(/^ {2}(-\w, )?--[a-z-]+/gm) ?? []).length, 8)
    const all = spawnSync(shell, [...before, SCRIPT, '--help', '--all'], { encoding: 'utf8' })
    match(all.stdout, /^ {2}--release TAG\|latest +the same as TAG/m)
  })
  inShell.run()
}

const LIBATOMIC = spawnSync('ldd', [process.execPath], { encoding: 'utf8' }).stdout?.match(/libatomic\S* => (\S+)/)?.[1]
const withoutLibatomic = suite('install: script, on a host without libatomic', {
  skip: isRoot && LIBATOMIC !== undefined ? null : 'needs root and a Node that links with libatomic',
})

withoutLibatomic(
  'what Node needs is named with the package that has it: install.sh, npm and the deploy scripts',
  async () => {
    const runsNode = (tag: string) =>
      `#!/bin/sh\n${process.execPath} --version >/dev/null || exit\necho "beacon ${tag}"\n`
    await using dist = await makeDist(['v1.0.0'], { executable: runsNode })
    const root = join(import.meta.dirname, '..')
    const commands = [
      ['dash', SCRIPT, '-y', '--feed', dist.dir],
      ['sh', join(root, 'deploy/deploy-fleet.sh'), '--help'],
      // as npm runs it
      [
        'env',
        `PATH=${join(root, 'node_modules/.bin')}:${process.env['PATH']}`,
        'sh',
        join(root, 'deploy/lib/node-starts.sh'),
      ],
    ]
    for (const command of commands) {
      const hidden = ['-m', 'sh', '-c', 'mount --bind /dev/null "$0" && exec "$@"', LIBATOMIC ?? '', ...command]
      const { status, stderr } = spawnSync('unshare', hidden, { encoding: 'utf8' })
      is(status, 3, stderr)
      match(stderr, /^error: .*libatomic.*\nhint: as root, run `apt-get install libatomic1`/m)
    }
  },
)

withoutLibatomic.run()

test(
  'cut after any byte it does nothing',
  async () => {
    const text = await readFile(SCRIPT, 'utf8')
    await using scratch = await temporary('script')
    // a word at the start of a line is the beginning of a command: cut in `make_scratch` it would be `make`
    await writeFile(join(scratch.path, 'Makefile'), 'all:\n\ttouch made\n')
    const cuts: string[] = []
    for (let at = 0; at < text.lastIndexOf('}'); at++) {
      // every shell throughout the last lines, in the long form at every line; elsewhere they take turns, in the long form at every byte,
      // in CI at some
      const isLine = text[at - 1] === '\n'
      const all = (isLine && isLong) || at > text.length - 60
      if (!all && !isLong && at % (isLine ? 2 : 96) !== 1) continue
      const turn = isLong ? at : cuts.length
      for (const [i, shell] of SHELLS.entries())
        if (all || turn % SHELLS.length === i) cuts.push(`${at} ${shell.join(' ')}`)
    }
    ok(cuts.length > (isLong ? 20_000 : 600))
    // one shell starts all the others: thousands of processes of Node's own starting cost five times as much
    const said = await new Promise<string>((resolve, reject) => {
      const child = spawn('dash', ['-c', CUT, 'dash', SCRIPT], {
        stdio: ['pipe', 'pipe', 'ignore'],
        cwd: scratch.path,
        env: { PATH: process.env['PATH'], HOME: scratch.path, TMPDIR: scratch.path },
      })
      let stdout = ''
      child.stdout.setEncoding('utf8').on('data', (part: string) => (stdout += part))
      child.stdin.end(`${cuts.join('\n')}\n`)
      child.once('error', reject)
      child.once('close', () => resolve(stdout))
    })
    equal(said, `${cuts.length} cuts\n`)
    equal(await readdir(scratch.path), ['Makefile'])
    const whole = spawnSync('dash', ['-s', '--', 'install', '-y', '--feed', '/nowhere'], {
      input: text,
      encoding: 'utf8',
    })
    is(whole.status, 4, 'the whole script does something')
  },
  { timeoutMs: 180_000 },
)

test('in each shell it fetches, verifies and runs the release, with the arguments as they are', async () => {
  await using dist = await sayingDist(['v1.9.0', 'v1.10.0'])
  const prefix = join(dist.dir, 'a b') // a place that any user can write to
  for (const shell of SHELLS) {
    const { code, stdout, stderr, left } = await installSh(['install', '-y', '--prefix', prefix, '--feed', dist.dir], {
      shell,
    })
    is(code, 0, `${shell.join(' ')}: ${stderr}`)
    is(stdout, `v1.10.0 ran: install -y --prefix ${prefix} --feed ${dist.dir} (${dist.dir})\n`)
    equal(left, [])
  }
})

test('without a command it installs; the exit code of what it runs is its own', async () => {
  await using dist = await sayingDist(['v1.0.0'], 'exit 8')
  const { code, stdout } = await installSh(['--release', 'v1.0.0', '--feed', `file://${dist.dir}`])
  equal([code, stdout.split(' (')[0]], [8, `v1.0.0 ran: install --feed file://${dist.dir} v1.0.0`])
})

test('a release is a word of its own, with and without `install` before it; two are refused before anything is fetched', async () => {
  await using dist = await sayingDist(['v1.0.0', 'v2.0.0'])
  for (const [words, ran] of [
    [['v1.0.0'], 'v1.0.0 ran: install v1.0.0'],
    [['install', 'v1.0.0', '-y'], 'v1.0.0 ran: install v1.0.0 -y'],
    [['latest', '-y'], 'v2.0.0 ran: install latest -y'],
    [['-q', '--release=v1.0.0'], 'v1.0.0 ran: install -q'],
  ] as const) {
    const { stdout, stderr } = await installSh([...words, '--feed', dist.dir])
    const flagged = words[1] === '--release=v1.0.0' ? ' v1.0.0' : ''
    is(stdout, `${ran} --feed ${dist.dir}${flagged} (${dist.dir})\n`, stderr)
  }
  const both = await installSh(['install', 'v1.0.0', '--release', 'v2.0.0', '--feed', 'http://127.0.0.1:9/'])
  equal([both.code, both.stderr], [2, 'error: expected one release, got v1.0.0 and --release v2.0.0\n'])
})

fetching('every form of feed, by curl and by wget', async () => {
  await using dist = await sayingDist(['v1.0.0', 'v2.0.0'])
  await using server = await releaseServer({ dir: dist.dir })
  for (const without of ['', 'curl']) {
    await using path = await pathWithout(without)
    for (const feed of [server.staticUrl, server.feed]) {
      const latest = await installSh(['--feed', feed], { path: path.path })
      match(latest.stdout, 'v2.0.0 ran', `${feed} without ${without || 'nothing'}: ${latest.stderr}`)
      const named = await installSh(['--feed', feed, '--release', 'v1.0.0'], { path: path.path })
      match(named.stdout, 'v1.0.0 ran', named.stderr)
    }
  }
})

test('drafts and prereleases are not the latest', async () => {
  await using dist = await sayingDist(['v1.0.0', 'v1.1.0', 'v1.2.0'])
  const releases = [
    { tag: 'v1.2.0', draft: true, prerelease: false },
    { tag: 'v1.1.0', draft: false, prerelease: true },
    { tag: 'v1.0.0', draft: false, prerelease: false },
    { tag: 'v9.0.0;id', draft: false, prerelease: false },
  ]
  await writeFile(join(dist.dir, 'releases.json'), JSON.stringify({ format: 1, releases }))
  match((await installSh(['--feed', dist.dir])).stdout, 'v1.0.0 ran')
})

test('a checksum that is wrong, missing or double ends with 5, and nothing was run', async () => {
  await using dist = await sayingDist(['v1.0.0'])
  const sums = join(dist.dir, 'v1.0.0/SHA256SUMS')
  const good = await readFile(sums, 'utf8')
  const line = good.split('\n').find((one) => one.endsWith(ASSET)) ?? ''
  const cases: [string, string][] = [
    ['missing', good.replace(`${line}\n`, '')],
    ['of another file', good.replace(line, line.replace(/^[0-9a-f]{64}/, 'a'.repeat(64)))],
    ['double', `${good}${'b'.repeat(64)}  ${ASSET}\n`],
    ['short', good.replace(line, line.slice(1))],
    ['empty', ''],
  ]
  for (const [what, text] of cases) {
    await writeFile(sums, text)
    const { code, stdout, stderr, left } = await installSh(['-y', '--feed', dist.dir])
    equal({ what, code, stdout, left }, { what, code: 5, stdout: '', left: [] }, stderr)
  }
})

test('the sum that a release has baked into its own install.sh beats what the feed says', async () => {
  await using dist = await sayingDist(['v1.0.0'])
  const baked = (await readFile(SCRIPT, 'utf8'))
    .replace('BATON_SERVICE=\n', "BATON_SERVICE='beacon'\n")
    .replace('BATON_TAG=\n', "BATON_TAG='v1.0.0'\n")
    .replace('BATON_FEED=\n', `BATON_FEED='${dist.dir}'\n`)
    .replaceAll(/^(BATON_SHA256_\w+)=$/gm, `$1='${'c'.repeat(64)}'`)
  const { code, stderr } = await installSh(['-y'], { script: baked })
  is(code, 5, stderr)
  match(stderr, `expected ${'c'.repeat(64)}`)
})

fetching(
  'the install.sh of a release asks its feed for its own asset and for nothing else, whatever release is named',
  async () => {
    await using dist = await sayingDist(['v1.0.0', 'v2.0.0'])
    await using server = await releaseServer({ dir: dist.dir })
    for (const flags of [[], ['--release', 'v2.0.0'], ['--release', 'latest']]) {
      server.requests.length = 0
      const ran = await installSh([...flags, '-y', '--feed', server.staticUrl], { script: await bakedFor(dist.dir) })
      equal([ran.code, ran.left], [0, []], ran.stderr)
      is(
        ran.stdout,
        `v1.0.0 ran: install -y --feed ${[server.staticUrl, ...flags.slice(1)].join(' ')} (${server.staticUrl})\n`,
      )
      equal(
        server.requests.map(({ path }) => path),
        [`/static/v1.0.0/${ASSET}`],
      )
    }
  },
)

test('a platform that a release was not built for ends with 3, and nothing is asked for', async () => {
  await using dist = await sayingDist(['v1.0.0'])
  await using server = await releaseServer({ dir: dist.dir })
  const script = (await bakedFor(dist.dir)).replaceAll(/^(BATON_SHA256_\w+)=.*$/gm, '$1=')
  const { code, stderr } = await installSh(['-y', '--feed', server.staticUrl], { script })
  is(code, 3, stderr)
  match(stderr, /v1\.0\.0 was not built for /)
  equal(server.requests, [])
})

fetching('bounds: what never ends is cut off at its size, by curl and by wget, and nothing is left', async () => {
  await using dist = await sayingDist(['v1.0.0'])
  await using server = await releaseServer({ dir: dist.dir })
  for (const without of ['', 'curl']) {
    await using path = await pathWithout(without)
    Object.assign(server.faults, { endlessJson: true })
    const list = await installSh(['-y', '--feed', server.staticUrl], { path: path.path })
    equal([list.code, list.stdout, list.left], [4, '', []], list.stderr)
    server.heal()
  }
  // 512 MB of an asset, 1 GB of an executable; a test has less patience
  const shorter = async () => {
    const script = await bakedFor(dist.dir)
    ok(script.includes('"$scratch/$asset" 512') && script.includes('bound 1024'))
    return script.replace('"$scratch/$asset" 512', '"$scratch/$asset" 8').replace('bound 1024', 'bound 4')
  }
  Object.assign(server.faults, { neverEnding: true })
  const asset = await installSh(['-y', '--feed', server.staticUrl], { script: await shorter() })
  equal([asset.code, asset.stdout, asset.left], [4, '', []], asset.stderr)
  await writeFile(join(dist.dir, 'v1.0.0', ASSET), gzipSync(Buffer.alloc(5 * 1024 * 1024)))
  const bomb = await installSh(['-y', '--feed', dist.dir], { script: await shorter() })
  equal([bomb.code, bomb.stdout, bomb.left], [7, '', []], bomb.stderr)
})

fetching(
  'redirects: from https never to plain http, from this host never to plain http elsewhere, to no other scheme; by both',
  async () => {
    const { key, cert } = makeCertificate()
    await using scratch = await temporary('script')
    const ca = join(scratch.path, 'ca.pem')
    await writeFile(ca, cert)
    const wgetrc = join(scratch.path, 'wgetrc')
    await writeFile(wgetrc, `ca_certificate = ${ca}\n`)
    const asked: string[] = []
    await using plain = await answering(createHttpServer, (request, response) => {
      asked.push(request.url ?? '')
      response.writeHead(302, { location: 'http://releases.example/x' }).end()
    })
    await using secure = await answering(
      (listener) => createHttpsServer({ key, cert }, listener),
      (request, response) => {
        asked.push(`https ${request.url}`)
        response
          .writeHead(302, { location: request.url?.includes('file') ? 'file:///etc/hostname' : `${plain.url}x` })
          .end()
      },
    )
    for (const without of ['', 'curl']) {
      await using path = await pathWithout(without)
      for (const [feed, why] of [
        [secure.url, 'was redirected to plain http'],
        [`${secure.url}file/`, 'redirected'],
        [plain.url, 'was redirected to plain http on another host'],
      ] as const) {
        asked.length = 0
        const script = (await bakedFor(''))
          .replace(/^main "\$@"$/m, `export CURL_CA_BUNDLE='${ca}' SSL_CERT_FILE='${ca}'\nmain "$@"`)
          .replaceAll('WGETRC="$scratch/wgetrc"', `WGETRC='${wgetrc}'`)
        const ran = await installSh(['-y', '--feed', feed], { path: path.path, script })
        equal([feed, ran.code, ran.stdout], [feed, 4, ''], ran.stderr)
        match(ran.stderr, why, `${feed} without ${without}`)
        is(asked.length, 1, asked.join()) // where it was led to is not asked
      }
    }
  },
)

fetching('what HOME sets for curl and wget is not read: it could write files', async () => {
  await using dist = await sayingDist(['v1.0.0'])
  await using server = await releaseServer({ dir: dist.dir })
  await using scratch = await temporary('script')
  const written = join(scratch.path, 'written')
  const files = { '.curlrc': `trace-ascii = ${written}\n`, '.wgetrc': `logfile = ${written}\n` }
  for (const without of ['', 'curl']) {
    await using path = await pathWithout(without)
    const ran = await installSh(['-y', '--feed', server.staticUrl], { path: path.path, files })
    equal([without, ran.code, existsSync(written)], [without, 0, false], ran.stderr)
  }
})

test('an executable that is another service, another tag or none at all is not run further', async () => {
  const says = (text: string) => `#!/bin/sh\nif [ "$1" = --version ]; then ${text}; fi\necho ran\n`
  for (const [text, code] of [
    ['echo beacon v9.9.9; exit 0', 5],
    ['echo lantern v1.0.0; exit 0', 5],
    ['exit 3', 3],
  ] as const) {
    await using dist = await makeDist(['v1.0.0'], { executable: () => says(text) })
    const ran = await installSh(['-y', '--feed', dist.dir])
    equal([ran.code, ran.stdout], [code, ''], ran.stderr)
  }
})

fetching('a server that fails, lies or is not there ends with 4', async () => {
  await using dist = await sayingDist(['v1.0.0'])
  await using server = await releaseServer({ dir: dist.dir })
  for (const faults of [{ status: 500 }, { html: true }, { assetStatus: 404 }, { missingChecksum: 'file' as const }]) {
    Object.assign(server.faults, faults)
    const { code, stdout, left } = await installSh(['-y', '--feed', server.staticUrl])
    equal({ faults, code, stdout, left }, { faults, code: 4, stdout: '', left: [] })
    server.heal()
  }
  for (const args of [
    ['--feed', server.staticUrl, '--release', 'v7.0.0'],
    ['--feed', 'http://127.0.0.1:1/'],
  ]) {
    const { code, stdout, left } = await installSh(['-y', ...args])
    equal({ args, code, stdout, left }, { args, code: 4, stdout: '', left: [] })
  }
})

test('plain http to anywhere else, and what is no feed at all, is refused before a byte is sent', async () => {
  for (const feed of [
    'http://releases.example/',
    'http://127.0.0.1.evil.example/',
    'ftp://x/',
    'releases',
    'https://x/$(id)',
    'http://localhost@evil.example/',
    'http://127.0.0.1:x@evil.example/',
    'http://127.0.0.1:80@evil.example/',
    'http://[::1]:80@evil.example/',
    'http://127.0.0.1:/',
  ]) {
    const { code, stderr } = await installSh(['-y', '--feed', feed])
    is(code, 2, `${feed}: ${stderr}`)
    match(stderr, /^error: (expected (https|a feed such as|a plain URL)|the feed must not contain credentials)/)
  }
})

test('usage: unknown commands, tags and missing values end with 2; help with 0', async () => {
  for (const [args, why] of [
    [['instal'], 'unknown command `instal`'],
    [['exit-codes'], 'unknown command `exit-codes`'],
    [['version'], 'unknown command `version`'],
    [['--release'], 'expected a value after --release'],
    [['--release', '1.0'], 'expected a tag of the form vX.Y.Z or latest, got 1.0'],
    [['--release', 'v1.0.0\nv2.0.0'], 'expected a tag of the form vX.Y.Z or latest, got v1.0.0'],
    [['--feed'], 'expected a value after --feed'],
    [[], 'expected a feed, got none'],
  ] as const) {
    const { code, stderr } = await installSh([...args])
    is(code, 2, args.join(' '))
    is(stderr.split('\n')[0], `error: ${why}`)
  }
  for (const [word, what, meant] of [
    ['--hlep', 'flag', '--help'],
    ['--relase=v1.0.0', 'flag', '--release'],
    ['upgarde', 'command', 'upgrade'],
    ['stauts', 'command', 'status'],
    ['update', 'command', 'upgrade'],
    ['doctr', 'command', 'doctor'],
  ] as const)
    for (const [shell = '', ...before] of SHELLS) {
      const { status, stderr } = spawnSync(shell, [...before, SCRIPT, word], { encoding: 'utf8' })
      equal(
        [status, stderr],
        [2, `error: unknown ${what} \`${word.split('=')[0]}\`\nhint: did you mean \`${meant}\`?\n`],
      )
    }
  const unknown = /^error: unknown flag `--port`\nhint: choose from --release, .*--listen/
  for (const args of [
    ['--port', '18989'],
    ['-y', '--port=18989', 'instal'],
  ]) {
    const { code, stderr } = await installSh(args)
    equal([code, unknown.test(stderr)], [2, true], stderr)
  }
  // before it fetches anything: no server is there
  const script = await bakedFor('')
  const { code, stderr } = await installSh(['install', '--port', '18989', '--feed', 'http://127.0.0.1:9/'], { script })
  equal([code, unknown.test(stderr)], [2, true], stderr)
  match((await installSh(['--help'])).stdout, 'upgrade [TAG]  rollback [TAG]')
  match((await installSh(['frob'])).stderr, /^error: unknown command `frob`\nhint: choose from install, upgrade, /)
  for (const asked of ['-v', '--version']) {
    equal((await installSh([asked], { script })).stdout, 'beacon v1.0.0\n')
    match((await installSh([asked])).stdout, /^beacon \(this install\.sh belongs to no release\)\n$/)
  }
  const one = await installSh(['upgrade', '--help'])
  equal([one.code, one.stdout], [0, (await installSh(['help', 'upgrade'])).stdout])
  match(one.stdout, /`SERVICE COMMAND --help` shows the flags of a command\n$/)
})

test('a command for an install that is not there ends with 7', async () => {
  for (const flags of [[], ['--lock-timeout', '5s', '--health-timeout', '5s']]) {
    // the value of a flag is not taken for the command
    const { code, stderr } = await installSh([...flags, 'upgrade', '--prefix', '/nowhere'])
    is(code, 7, stderr)
    match(stderr, 'beacon is not installed on this host')
  }
})

test('doctor has something to say before there is an install', async () => {
  await using dist = await sayingDist(['v1.0.0'])
  const { code, stdout } = await installSh(['doctor', '--prefix', '/nowhere', '--feed', dist.dir])
  equal([code, stdout], [0, `v1.0.0 ran: doctor --prefix /nowhere --feed ${dist.dir} (${dist.dir})\n`])
})

fetching('stopped in the middle of a download it leaves nothing', async () => {
  await using dist = await makeDist(['v1.0.0'])
  // random bytes: they stay as many when compressed
  await writeFile(
    join(dist.dir, 'v1.0.0', ASSET),
    gzipSync(Buffer.from(Array.from({ length: 400_000 }, () => Math.floor(Math.random() * 256)))),
  )
  await dist.sum('v1.0.0')
  await using server = await releaseServer({ dir: dist.dir, bytesPerSecond: 50_000 })
  await using scratch = await temporary('script')
  const child = spawn('dash', [SCRIPT, '-y', '--feed', server.staticUrl], {
    env: { ...process.env, TMPDIR: scratch.path, HOME: scratch.path },
    stdio: 'ignore',
  })
  await eventually('the download', async () => server.requests.some(({ path }) => path.includes(ASSET)))
  const ended = new Promise<number | null>((resolve) => child.once('exit', resolve))
  child.kill('SIGTERM')
  server.throttle(undefined)
  is(await ended, 143)
  equal(await readdir(scratch.path), [])
})

test("a stranger's clone in the working folder, or beside the script, is not built: through a pipe and as a file, by any command", async () => {
  await using dist = await sayingDist(['v1.0.0'])
  await using place = await temporary('script')
  const ran = join(place.path, 'ran')
  await fakeClone(place.path, ran)
  const own = await readFile(SCRIPT, 'utf8')
  // a release that was built without a feed
  const released = (await bakedFor(dist.dir)).replace(/^BATON_FEED=.*$/m, 'BATON_FEED=')
  for (const script of [own, released]) {
    await writeFile(join(place.path, 'install.sh'), script)
    for (const [args, cwd, input] of [
      [['-s', '--', '-y'], place.path, script],
      [['-s', '--', '-n'], place.path, script],
      [['-s', '--', 'doctor', '--prefix', '/nowhere'], place.path, script],
      [[join(place.path, 'install.sh'), '-y'], '/', ''],
      [['install.sh', '-n'], place.path, ''],
      [['install.sh', 'doctor', '--prefix', '/nowhere'], place.path, ''],
    ] as const) {
      const { status, stderr } = spawnSync('dash', args, {
        cwd,
        input,
        encoding: 'utf8',
        env: { PATH: process.env['PATH'], HOME: place.path, TMPDIR: tmpdir() },
      })
      equal([args, existsSync(ran)], [args, false])
      equal([args, status], [args, 2], stderr)
      match(stderr, 'expected a feed, got none')
    }
  }
})

test('`--clone` builds that clone and hands its dist on as the feed; a release has none, and a feed beside it is refused', async () => {
  await using place = await ownFolder()
  const clone = join(place.path, 'clone')
  await using dist = await sayingDist(['v1.0.0'])
  await fakeClone(clone, join(place.path, 'ran'), dist.dir)
  const built = await installSh(['-n', '--clone', clone, '-q'])
  equal(
    [built.code, built.stdout],
    [0, `v1.0.0 ran: install -n -q --feed ${clone}/dist (${clone}/dist)\n`],
    built.stderr,
  )
  match(await readFile(join(place.path, 'ran'), 'utf8'), ' v1.0.0')
  const both = await installSh([`--clone=${clone}`, '--feed', dist.dir])
  equal([both.code, both.stderr.split('\n')[0]], [2, 'error: expected `--clone` or `--feed`, got both'])
  const none = await installSh(['--clone', place.path])
  equal([none.code, none.stderr.split(', ')[0]], [2, `error: expected a clone in ${place.path}`])
  const script = await bakedFor(dist.dir)
  match(
    (await installSh(['--clone', clone], { script })).stderr,
    '`--clone` does not work with this install.sh, which belongs to the release',
  )
})

test('`--clone` beside a command of the install that is here is refused: that builds nothing, and nothing is run', async () => {
  await using place = await ownFolder()
  const [clone, prefix] = [join(place.path, 'clone'), join(place.path, 'beacon')]
  await using dist = await sayingDist(['v1.0.0'])
  await fakeClone(clone, join(place.path, 'ran'), dist.dir)
  await mkdir(prefix)
  await writeFile(join(prefix, 'receipt.json'), JSON.stringify({ service: 'beacon', feed: dist.dir }, null, 2))
  const program = '#!/bin/sh\nif [ "$1" = --version ]; then echo "beacon v1.0.0"; else echo "ran $*"; fi\n'
  await writeFile(join(prefix, 'beacon'), program, { mode: 0o755 })
  const here = ['--user', '--prefix', prefix]
  match((await installSh(['status', ...here])).stdout, /^ran status/)
  for (const command of ['upgrade', 'rollback', 'status', 'doctor', 'start', 'uninstall']) {
    const { code, stdout, stderr } = await installSh([command, '--clone', clone, ...here])
    equal([code, stdout], [2, ''], stderr)
    match(stderr, `\`--clone\` cannot be used with ${command}`)
    match(stderr, `use \`install --clone ${clone}\``)
  }
  is(existsSync(join(place.path, 'ran')), false)
})

if (isRoot) {
  test("as root only where nobody else can write: no build of a clone, and no feed, in anybody's folder", async () => {
    await using place = await ownFolder()
    const [clone, ran] = [join(place.path, 'a', 'clone'), join(place.path, 'ran')]
    await fakeClone(clone, ran)
    const refused = async (why: string) => {
      const { code, stderr } = await installSh(['-y', '--clone', clone])
      equal([why, code, existsSync(ran)], [why, 7, false], stderr)
      match(stderr, 'did not build the clone, which users other than root can change')
    }
    for (const [path, mode] of [
      [join(place.path, 'a'), 0o777],
      [join(place.path, 'a'), 0o1777],
      [clone, 0o757],
      [join(clone, 'deploy'), 0o757],
      [join(clone, 'package.json'), 0o666],
    ] as const) {
      const before = (await stat(path)).mode
      await chmod(path, mode)
      await refused(`${path} ${mode.toString(8)}`)
      await chmod(path, before)
    }
    for (const path of [join(place.path, 'a'), clone, join(clone, 'package.json')]) {
      await chown(path, 65534, 65534)
      await refused(`${path} of another user`)
      await chown(path, 0, 0)
    }
    // a release that knows no feed, unpacked in a folder where everybody can make names
    await using dist = await sayingDist(['v1.0.0'])
    const released = (await bakedFor(dist.dir)).replace(/^BATON_FEED=.*$/m, 'BATON_FEED=')
    await writeFile(join(dist.dir, 'v1.0.0', 'install.sh'), released)
    const beside = () => spawnSync('dash', [join(dist.dir, 'v1.0.0', 'install.sh'), '-y'], { encoding: 'utf8' })
    match(beside().stdout, 'v1.0.0 ran')
    await chown(join(dist.dir, 'v1.0.0', 'install.sh'), 65534, 65534)
    await chown(dist.dir, 65534, 65534)
    match(beside().stdout, 'v1.0.0 ran', 'whose the script is may have published it')
    await chown(dist.dir, 65533, 65533)
    equal([beside().status, beside().stdout], [2, ''])
    await chown(dist.dir, 0, 0)
    await chmod(dist.dir, 0o1777)
    equal([beside().status, beside().stdout], [2, ''])
  })

  test("as root in a stranger's HOME: no setting of npm there counts, root's own home is used", async () => {
    await using place = await temporary('script')
    await using own = await ownFolder()
    await using dist = await sayingDist(
      ['v1.0.0'],
      'echo "$HOME ${XDG_CONFIG_HOME-none} ${npm_config_x-none} ${NPM_CONFIG_Y-none}"',
    )
    await chmod(place.path, 0o755)
    const [ran, evil] = [join(place.path, 'ran'), join(place.path, 'evil')]
    const [sticky, link] = [join(place.path, 'sticky'), join(place.path, 'link')]
    await writeFile(evil, `#!/bin/sh\nid -u >>${ran}\n`, { mode: 0o755 })
    const home = join(place.path, 'home')
    for (const path of [home, join(home, 'below'), sticky]) {
      await mkdir(path)
      await writeFile(join(path, '.npmrc'), `script-shell=${evil}\n`)
    }
    await chmod(sticky, 0o1777)
    await chown(home, 65534, 65534)
    await symlink(home, link)
    const { stdout: passwd } = spawnSync('getent', ['passwd', '0'], { encoding: 'utf8' })
    const roots = passwd.split(':')[5]
    for (const HOME of [home, join(home, 'below'), sticky, link, '']) {
      // npm takes a second: one shell each builds
      for (const [i, [shell = '', ...before]] of HOME === home ? SHELLS.entries() : [[0, ['dash']] as const]) {
        const clone = join(own.path, `clone-${i}`)
        await rm(clone, { recursive: true, force: true })
        await fakeClone(clone, join(own.path, 'built'), dist.dir)
        for (const feed of [
          ['--clone', clone],
          ['--feed', dist.dir],
        ]) {
          const env = {
            PATH: process.env['PATH'],
            HOME,
            TMPDIR: tmpdir(),
            XDG_CONFIG_HOME: home,
            npm_config_x: '1',
            NPM_CONFIG_Y: '1',
            npm_config_script_shell: evil,
          }
          const { status, stdout, stderr } = spawnSync(shell, [...before, SCRIPT, '-y', ...feed], {
            encoding: 'utf8',
            env,
          })
          equal([HOME, feed, status, existsSync(ran)], [HOME, feed, 0, false], stderr)
          is(stdout.split('\n')[1], `${roots} none none none`)
        }
      }
    }
    // a HOME that is root's stays
    const { stdout } = spawnSync('dash', [SCRIPT, '-y', '--feed', dist.dir], {
      encoding: 'utf8',
      env: { PATH: process.env['PATH'], HOME: own.path, npm_config_x: '1' },
    })
    is(stdout.split('\n')[1], `${own.path} none 1 none`)
  })

  test("as root through a stranger's link: what is checked is what is used, whenever the link is exchanged", async () => {
    await using dist = await sayingDist(['v1.0.0'])
    const script = await bakedFor(dist.dir)
    for (const [shell = '', ...before] of SHELLS) {
      for (const program of ['mktemp', 'gzip', 'ls']) {
        await using own = await ownFolder()
        await using place = await temporary('script')
        await using path = await pathWithout(program)
        await chmod(place.path, 0o755)
        const [eves, link, honest, kept] = [
          join(place.path, 'eve'),
          join(place.path, 'link'),
          join(own.path, 'honest'),
          join(own.path, 'kept'),
        ]
        for (const folder of [eves, honest, kept]) await mkdir(folder)
        await writeFile(join(kept, 'file'), '')
        await symlink(honest, link)
        await chown(place.path, 65534, 65534)
        const says = (who: string) =>
          `#!/bin/sh\nif [ "$1" = --version ]; then echo "beacon v1.0.0"; exit 0; fi\necho "${who} ran"\n`
        await writeFile(join(place.path, 'evil'), says('eve'), { mode: 0o755 })
        // eve's part, at the moment that suits it best
        const exchange = {
          mktemp: `made=$(/usr/bin/mktemp "$@"); echo "$made"; ln -s ${kept} ${eves}/"\${made##*/}"; ln -sfn ${eves} ${link}`,
          gzip: `for made in ${honest}/*; do cp -r "$made" ${eves}; cp ${place.path}/evil ${eves}/"\${made##*/}"/beacon; done; ln -sfn ${eves} ${link}; exec /usr/bin/gzip "$@"`,
          ls: `case "$*" in */honest/beacon) cp ${place.path}/evil ${eves}/beacon; ln -sfn ${eves} ${link} ;; esac; exec /usr/bin/ls "$@"`,
        }[program]
        await writeFile(join(path.path, program), `#!/bin/sh\n${exchange}\n`, { mode: 0o755 })
        await writeFile(join(own.path, 'install.sh'), script)
        if (program === 'ls') {
          await writeFile(join(honest, 'receipt.json'), '{}')
          await writeFile(join(honest, 'beacon'), says('v1.0.0'), { mode: 0o755 })
        }
        const args = program === 'ls' ? ['status', '--user', '--prefix', link] : ['-y']
        const { status, stdout, stderr } = spawnSync(shell, [...before, join(own.path, 'install.sh'), ...args], {
          encoding: 'utf8',
          env: { PATH: path.path, HOME: own.path, ...(program !== 'ls' && { TMPDIR: link }) },
        })
        equal([program, status, stdout.slice(0, 10)], [program, 0, 'v1.0.0 ran'], stderr)
        equal(await readdir(kept), ['file'])
        if (program !== 'ls') equal(await readdir(honest), [])
      }
    }
  })

  test('a TMPDIR that is noexec or too small ends with 7 and says so', async () => {
    await using dist = await sayingDist(['v1.0.0'])
    for (const [options, message] of [
      ['noexec', 'noexec'],
      ['size=1m', 'free space'],
    ] as const) {
      const command = `mount -t tmpfs -o ${options} tmpfs /mnt && TMPDIR=/mnt exec dash "$0" -y --feed "$1"`
      const { status, stderr } = spawnSync('unshare', ['-m', 'sh', '-c', command, SCRIPT, dist.dir], {
        encoding: 'utf8',
      })
      is(status, 7, stderr)
      match(stderr, message)
    }
  })

  test('a target that is read-only or too small ends with 7 before anything is asked for', async () => {
    await using scratch = await temporary('script')
    const file = join(scratch.path, 'install.sh')
    await writeFile(file, await bakedFor('http://127.0.0.1:1/')) // a feed that would end with 4
    for (const [options, message] of [
      ['ro', 'read-only'],
      ['size=1m', 'not enough space'],
    ] as const) {
      const command = `mount -t tmpfs -o ${options} tmpfs /mnt && exec dash "$0" -y --prefix /mnt/app`
      const { status, stderr } = spawnSync('unshare', ['-m', 'sh', '-c', command, file], { encoding: 'utf8' })
      is(status, 7, stderr)
      match(stderr, message)
    }
  })

  test('musl is refused with 3, in a root that has nothing but busybox', async () => {
    await using root = await temporary('script')
    await mkdir(join(root.path, 'bin'))
    await mkdir(join(root.path, 'lib'))
    await mkdir(join(root.path, 'tmp'))
    await copyFile('/bin/busybox', join(root.path, 'bin/busybox'))
    for (const name of ['sh', 'uname', 'tr', 'id', 'dd', 'sed', 'grep', 'wc'])
      await symlink('busybox', join(root.path, 'bin', name))
    await copyFile(SCRIPT, join(root.path, 'install.sh'))
    const run = () =>
      spawnSync('/usr/sbin/chroot', [root.path, '/bin/sh', '/install.sh', '-y', '--feed', '/feed'], {
        encoding: 'utf8',
        env: { PATH: '/bin' },
      })
    const bare = run()
    is(bare.status, 3, bare.stderr)
    match(bare.stderr, "glibc's loader")
    await writeFile(join(root.path, 'lib/ld-musl-x86_64.so.1'), '')
    const musl = run()
    is(musl.status, 3)
    match(musl.stderr, 'found musl')
  })
}

/** What looks like a clone of this kit. Its build says so in `ran`, and puts there what `dist` has. */
async function fakeClone(path: string, ran: string, dist = '/nowhere'): Promise<void> {
  await mkdir(join(path, 'deploy'), { recursive: true })
  await mkdir(join(path, 'node_modules'), { recursive: true })
  await writeFile(join(path, 'deploy', 'build.ts'), '')
  const build = `echo "$(id -u) $*" >> ${ran}; cp -r ${dist} dist; true`
  const text = JSON.stringify({ version: '1.0.0', scripts: { build: `sh -c '${build}' build` } }, null, 2)
  await writeFile(join(path, 'package.json'), text)
}

/** Nobody else can write there, nor above it. */
async function ownFolder(): Promise<{ path: string } & AsyncDisposable> {
  const path = await mkdtemp(join(isRoot ? '/root' : homedir(), '.baton-script-'))
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) }
}

/** Releases whose executable says how it was called. */
async function sayingDist(tags: string[], then = 'exit 0') {
  return await makeDist(tags, {
    executable: (tag) =>
      `#!/bin/sh\nif [ "$1" = --version ]; then echo "beacon ${tag}"; exit 0; fi\necho "${tag} ran: $* ($BATON_DEFAULT_FEED)"\n${then}\n`,
  })
}

/** The install.sh of v1.0.0 as the build makes it: with the sum of what the folder has, or of nothing. */
async function bakedFor(dir: string): Promise<string> {
  const asset = !dir.startsWith('/') ? null : await readFile(join(dir, 'v1.0.0', ASSET))
  return bakeInstaller(await readFile(SCRIPT, 'utf8'), {
    BATON_SERVICE: 'beacon',
    BATON_TAG: 'v1.0.0',
    BATON_FEED: dir.startsWith('http') || dir === '' ? dir || 'https://releases.example/' : dir,
    [`BATON_SHA256_${process.platform}_${process.arch}`.toUpperCase()]: createHash('sha256')
      .update(asset ?? '')
      .digest('hex'),
  })
}

test('it knows every flag of every command that it passes on', async () => {
  const text = await readFile(SCRIPT, 'utf8')
  const cases = text.slice(text.indexOf('read_arguments() {'), text.indexOf('# the executable reads the other flags'))
  // of words that are no commands of install.sh, and of the supervisor
  const others = ['given-up', 'supervise', 'try']
  const flags = COMMANDS.flatMap(({ args }) => Object.entries(args))
  for (const other of others)
    ok(
      flags.some(([name]) => name === other),
      other,
    )
  for (const [name, flag] of flags) {
    if (flag.type === 'positional' || others.includes(name)) continue
    ok(new RegExp(String.raw`(^|[\s|])--${name}( |\)|=)`, 'm').test(cases), `--${name}`)
    if (flag.type === 'string') ok(cases.includes(`--${name}=*`), `--${name}=…`)
    if ('alias' in flag) ok(cases.includes(`-${String(flag.alias)} `), `-${String(flag.alias)}`)
  }
})

async function answering(
  make: (listener: RequestListener) => Server,
  listener: RequestListener,
): Promise<{ url: string } & AsyncDisposable> {
  const server = make(listener)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return {
    url: `${'setSecureContext' in server ? 'https' : 'http'}://127.0.0.1:${port}/`,
    [Symbol.asyncDispose]: () => new Promise((resolve) => void server.close(() => resolve())),
  }
}

async function installSh(
  args: string[],
  {
    shell = ['dash'],
    path = process.env['PATH'] ?? '',
    script,
    files = {},
  }: { shell?: string[]; path?: string; script?: string; files?: Record<string, string> } = {},
): Promise<Ran> {
  await using scratch = await temporary('script')
  for (const [name, text] of Object.entries(files)) await writeFile(join(scratch.path, name), text)
  await using place = await temporary('script')
  const file = join(place.path, 'install.sh')
  await writeFile(file, script ?? (await readFile(SCRIPT, 'utf8')))
  const [command = '', ...before] = shell
  const child = spawn(command, [...before, file, ...args], {
    env: { PATH: path, HOME: scratch.path, TMPDIR: scratch.path },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let [stdout, stderr] = ['', '']
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text))
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  const code = await new Promise<number>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (exit) => resolve(exit ?? 255))
  })
  const left = (await readdir(scratch.path)).filter((name) => !Object.hasOwn(files, name))
  return { code, stdout, stderr, left }
}

let programs: Promise<string> | null = null

/** A PATH with every program of the usual places but one; '' lacks none. One at a time: it is one folder, since its links take long. */
async function pathWithout(name: string): Promise<{ path: string } & AsyncDisposable> {
  const path = await (programs ??= linkPrograms())
  if (name === '') return { path, [Symbol.asyncDispose]: async () => {} }
  const link = join(path, name)
  const program = await readlink(link).catch(() => null) // this machine may have none
  await rm(link, { force: true })
  return {
    path,
    async [Symbol.asyncDispose]() {
      await rm(link, { force: true }) // a test may have put another one there
      if (program !== null) await symlink(program, link)
    },
  }
}

async function linkPrograms(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'baton-programs-'))
  process.once('exit', () => rmSync(path, { recursive: true }))
  for (const folder of ['/usr/bin', '/bin'])
    for (const program of await readdir(folder))
      await symlink(join(folder, program), join(path, program)).catch(() => {})
  return path
}

test.run()
fetching.run()
