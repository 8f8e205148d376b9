// The real image: built by container/Dockerfile from real releases, run as the guide says, upgraded and rolled back under load.
// Building an image takes the engine half a minute: CI runs those that images.ts has built once, and only the long form builds
// them in the middle of the guide. What the guide says of a holder and of compose is CI's in hold-moves.ts and compose.ts.

import { existsSync } from 'node:fs'
import { mkdir, mkdtemp, readdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { isLong, suite } from '../suite.ts'
import { equal, match, ok, rejects, withCode } from '../assert.ts'
import type { EndEvent } from '../../deploy/container/report.ts'
import { run } from '../../deploy/lib/shell.ts'
import { publishTo, releases } from '../fixtures/releases.ts'
import { labFolder, openLab, publishBase } from '../lab/docker.ts'
import { commandsOf } from '../lab/page.ts'
import { BORROWS } from './held-service.ts'
import { serviceImages } from './images.ts'
import { deployIn, healthy, statusIn, until } from './probe.ts'
import { sideBySide } from './side-by-side.ts'

const { skip, engine, registry, close } = await openLab()
const test = suite('container image', { timeoutMs: 300_000, skip })
/** what names its container leaves the others alone */
const beside = sideBySide(test, 3)
/** between two rows of a writer, which takes a whole processor without a pause */
const PAUSE_MS = isLong ? 2 : 20
const TOOL = 'docker run --rm -v /var/run/docker.sock:/var/run/docker.sock'
const ROOT = join(import.meta.dirname, '../..')
/** sections of the guide whose commands only the long form runs */
const LATER = isLong ? [] : ['Without a holder', 'Compose']
let repository = ''
let base: string | null = null
let dist = ''

test.before(async () => {
  repository = `${registry.host}/beacon`
  if (isLong) base = await publishBase(registry.host)
  else await serviceImages(engine, registry)
  dist = await publishTo(join(labFolder(), 'dist'), await releases([{ tag: 'v1.0.0' }, { tag: 'v1.1.0' }]))
})

// the first, since in the long form it makes the images that the others run
test(`the guide: every command of docs/operator/container.md${isLong ? '' : ', but for the builds, `--keep-port` and compose,'} does what the page says`, async () => {
  const whole = await readFile(join(ROOT, 'docs/operator/container.md'), 'utf8')
  const sections = whole.split(/^(?=## )/m)
  const page = sections.filter((text) => !LATER.some((title) => text.startsWith(`## ${title}\n`))).join('')
  equal(sections.length - page.split(/^(?=## )/m).length, LATER.length)
  const blocks = Array.from(page.matchAll(/^```(sh|yaml)\n(.*?)^```$/gms), ([, language, text = '']) =>
    language === 'yaml' ? `mkdir -p compose\ncat > compose/compose.yaml <<'END'\n${text}END\n` : text,
  )
  ok(blocks.length >= 7)
  const around = await mkdtemp(join(labFolder(), 'guide-'))
  const folder = join(around, 'beacon')
  await mkdir(folder)
  for (const name of ['deploy', 'container', 'package.json', 'node_modules', 'agent', 'tsconfig.json'])
    await symlink(join(ROOT, name), join(folder, name))
  const script = forBeacon(blocks)
  // `-e`: the first command that fails ends it; `pipefail`, so that a pipe hides none
  const { exitCode, stdout, stderr } = await run(
    ['bash', '-euo', 'pipefail', '-c', `PS4='+ $SECONDS s: '\nset -x\n${script}`],
    {
      cwd: folder,
      env: engine.environment,
      allowFailure: true,
    },
  )
  equal([exitCode, exitCode === 0 ? '' : stderr.slice(-1500)], [0, ''])
  // the loop of the guide has ended at no request, and both have answered it
  match(stdout, /^ *\d+ beacon v1\.0\.0\n *\d+ beacon v1\.1\.0$/m)
  const answers = Array.from(stdout.matchAll(/^beacon (v[\d.]+)$/gm), ([, tag]) => tag)
  equal(answers.slice(0, 2), ['v1.0.0', 'v1.0.0'], 'the first release, and after the rollback')
  const { tags } = (await (await fetch(`http://${registry.host}/v2/beacon/tags/list`)).json()) as { tags: string[] }
  const ofEach = ['v1.0.0', 'v1.1.0'].flatMap((tag) => [tag, `${tag}-deploy`, `${tag}-holder`])
  equal(tags.toSorted(), ['deploy', 'holder', 'latest', ...ofEach].toSorted())
  const copy = new DatabaseSync(join(around, 'beacon-copy.db'), { readOnly: true })
  equal(copy.prepare('pragma integrity_check').get()?.['integrity_check'], 'ok')
  copy.close()
  const place = (await engine.docker('volume', 'inspect', '--format', '{{.Mountpoint}}', 'beacon-state')).trim()
  const [aside = ''] = (await readdir(place)).filter((name) => name.startsWith('aside.'))
  for (const [path, count] of [
    ['beacon.db', 0],
    [`${aside}/beacon.db`, 1],
  ] as const) {
    const database = new DatabaseSync(join(place, path))
    equal(database.prepare("select count(*) as n from logs where message = 'written since'").get()?.['n'], count, path)
    database.close()
  }
})

// by the words of a clone, the guide has made them above
test.long(
  'the page of publishing: an image by one line, into the repository that baton.config.json names',
  async () => {
    const folder = await mkdtemp(join(labFolder(), 'author-'))
    await symlink(dist, join(folder, 'releases'))
    const config = { service: 'beacon', entry: 'main.ts', image: `${registry.host}/named` }
    await writeFile(join(folder, 'baton.config.json'), JSON.stringify(config))
    const [line = ''] = await commandsOf('docs/author/publishing.md', 'An image')
    const baton = `${process.execPath} --import ${import.meta.resolve('tsx')} ${join(ROOT, 'deploy/baton.ts')}`
    const script = line.replace('npx baton', baton).replace(' --push', ` --push --base ${base}`)
    await run(['sh', '-eux', '-c', script], { cwd: folder, env: engine.environment })
    const { tags } = (await (await fetch(`http://${registry.host}/v2/named/tags/list`)).json()) as { tags: string[] }
    equal(tags.toSorted(), ['deploy', 'holder', 'latest', 'v1.1.0', 'v1.1.0-deploy', 'v1.1.0-holder'])
  },
)

test('a base image that cannot be had ends the build with its reason in a line, and the flag that names another', async () => {
  const flags = ['--out', dist, '--repository', 'x', '--base', '127.0.0.1:9/none:1', '--no-holder']
  const image = ['npm', 'run', '-s', 'image', '--', 'v1.0.0', ...flags]
  const { exitCode, stderr } = await run(image, { cwd: ROOT, env: engine.environment, allowFailure: true })
  equal(exitCode, 4, stderr)
  match(
    stderr,
    /^error: pulling the base image 127\.0\.0\.1:9\/none:1: .{1,200}\nhint: choose another base image with `--base`; it must contain glibc/m,
  )
})

test('is small in rights: a number for a user, a read-only root, no capability, and stops at once with 0', async () => {
  await engine.docker(
    'run',
    '-d',
    '--name',
    'strict',
    '--health-interval',
    '300ms',
    '--read-only',
    '--cap-drop',
    'ALL',
    '--security-opt',
    'no-new-privileges',
    `${repository}:v1.0.0`,
  )
  await until('its own check', async () => (await engine.inspect('strict')).State.Health.Status === 'healthy')
  const { Config, State, Mounts } = await engine.inspect('strict')
  equal(
    [Config.User, Config.StopSignal, Config.Labels['org.opencontainers.image.version']],
    ['65532:65532', 'SIGTERM', 'v1.0.0'],
  )
  equal(Config.Labels['baton.state-directory'], '/var/lib/beacon')
  equal(
    Mounts.map(({ Destination }: { Destination: string }) => Destination),
    ['/var/lib/beacon'],
  )
  equal(State.Health.Log.at(-1).Output, 'beacon v1.0.0\n')
  // as it comes it has no password, and asks for none that would lead to nothing
  const { NetworkSettings } = await engine.inspect('strict')
  const refused = await fetch(`http://${NetworkSettings.IPAddress}:8080/admin/update/status`)
  equal([refused.status, ((await refused.json()) as { reason: string }).reason], [501, 'container'])
  const startedAt = performance.now()
  await engine.docker('stop', '--time', '20', 'strict')
  ok(performance.now() - startedAt < 8000)
  equal((await engine.inspect('strict')).State.ExitCode, 0)
  await engine.docker('rm', 'strict')
})

test('answers 501 to every update request with a command that works as it is printed', async () => {
  const folder = await mkdtemp(join(labFolder(), 'config-'))
  await run(['chmod', '755', folder])
  const config = {
    dashboard: { password: 'correct-horse' },
    listen: { host: '0.0.0.0', port: 8080 },
    feed: '/releases',
  }
  await writeFile(join(folder, 'config.json'), JSON.stringify(config))
  await engine.docker(
    'run',
    '-d',
    '--name',
    'asked',
    '-p',
    '8090:8080',
    '-v',
    `${folder}:/etc/beacon:ro`,
    '-v',
    `${dist}:/releases:ro`,
    `${repository}:v1.0.0`,
  )
  await healthy(engine, 'asked')
  let body: Record<string, string> = {}
  for (const [method, path] of [
    ['POST', '/admin/update'],
    ['POST', '/admin/update/check'],
    ['GET', '/admin/update/status'],
    ['POST', '/admin/update/rollback'],
  ] as const) {
    const answer = await fetch(`http://127.0.0.1:8090${path}`, {
      method,
      headers: { authorization: 'Bearer correct-horse' },
    })
    equal(answer.status, 501)
    body = (await answer.json()) as Record<string, string>
  }
  const status = async () => {
    const headers = { authorization: 'Bearer correct-horse' }
    return (await (await fetch('http://127.0.0.1:8090/admin/update/status', { headers })).json()) as typeof body
  }
  await until('the newest release', async () => (body = await status())['latest'] !== null)
  equal(body['latest'], 'v1.1.0')
  equal([body['code'], body['reason'], body['running']], ['not_managed', 'container', 'v1.0.0'])
  equal(body['command'], `${TOOL} ${repository}:deploy deploy --container label=baton.service=beacon --release latest`)
  equal((await deployed('deploy --status --json')).container, 'asked', 'the only container of a service is taken')
  // as it is printed, but for where this lab has its engine; and without half a minute of probation
  const { outcome, container } = await deployed(
    `${(body['command'] ?? '').split(':deploy ')[1]} --probation 500ms --json`,
  )
  equal([outcome, container], ['updated', 'asked'])
  equal(await (await fetch('http://127.0.0.1:8090/')).text(), 'beacon v1.1.0\n')
  await engine.docker('rm', '-f', 'asked', 'asked-baton-previous')
})

test('its own commands say in one line what its host does for them; its doctor looks at what is inside, and advises nothing of a host', async () => {
  const service = async (...words: string[]) => {
    const command = ['docker', 'exec', 'inside', '/usr/local/bin/service', ...words]
    const { exitCode, stdout, stderr } = await run(command, { env: engine.environment, allowFailure: true })
    return { exitCode, said: stdout + stderr }
  }
  await engine.docker(
    'run',
    '-d',
    '--name',
    'inside-door',
    '-v',
    'inside-hold:/run/hold',
    `${repository}:holder`,
    '8080',
  )
  const volume = ['-v', 'inside-hold:/run/hold:ro']
  await engine.docker('run', '-d', '--name', 'inside', ...volume, ...BORROWS, `${repository}:v1.0.0`)
  await healthy(engine, 'inside')
  const id = (await engine.inspect('inside')).Id.slice(0, 12)
  for (const word of ['status', 'logs', 'upgrade', 'rollback', 'restart', 'releases', 'install']) {
    const { exitCode, said } = await service(word)
    equal(exitCode, 7, `${word}: ${said}`)
    match(said, /^error: this is a container: update its image instead\nhint: on the container's host, run /, word)
    ok(said.includes(`${TOOL} ${repository}:deploy deploy --container `), said)
    ok(said.includes(`\`docker logs ${id}\``), said)
  }
  const well = await service('doctor')
  equal(well.exitCode, 0, well.said)
  for (const check of ['container', 'configuration', 'state', 'database', 'feed', 'health', 'holder'])
    match(well.said, new RegExp(`^ok +${check} `, 'm'), well.said)
  await engine.docker('rm', '-f', 'inside')
  // a port that the holder does not have, and a holder that is mounted and not named
  const misfit = await mkdtemp(join(labFolder(), 'misfit-'))
  await run(['chmod', '755', misfit])
  const settings = { listen: { host: '0.0.0.0', port: 8081 } }
  await writeFile(join(misfit, 'config.json'), JSON.stringify(settings), { mode: 0o644 })
  const etcToo = ['-v', `${misfit}:/etc/beacon:ro`]
  for (const borrows of [BORROWS, ['--group-add', '65531']]) {
    await engine.docker('run', '-d', '--name', 'inside', ...volume, ...etcToo, ...borrows, `${repository}:v1.0.0`)
    await healthy(engine, 'inside')
    const { exitCode, said } = await service('doctor')
    equal(exitCode, 0, said)
    match(
      said,
      borrows === BORROWS
        ? /^warning +holder +the service listens on port 8081, but the holder has only 8080: /m
        : /^warning +holder +a holder is mounted at \/run\/hold\/socket, but BATON_HOLDER does not point to it$/m,
    )
    // a deployment would say that all is well, and nobody would be served
    const isUsed = borrows === BORROWS
    if (isUsed) await engine.docker('stop', '-t', '1', 'inside-door')
    const refused = await rejects(deployIn(engine, { container: 'inside', release: 'v1.1.0' }), withCode('refused'))
    match(
      refused.message,
      isUsed ? '`inside-door`, the holder of `inside`, is not running' : 'does not have BATON_HOLDER set',
    )
    equal((await statusIn(engine, 'inside')).holder, { name: 'inside-door', runs: !isUsed, isUsed })
    if (isUsed) await engine.docker('start', 'inside-door')
    await engine.docker('rm', '-f', 'inside')
  }
  await engine.docker('rm', '-f', 'inside-door')
  // a folder of root's, a service that nobody outside reaches, and a holder that is not there
  const folder = await mkdtemp(join(labFolder(), 'unwell-'))
  const [state, etc] = [join(folder, 'state'), join(folder, 'etc')]
  await run(['install', '-d', '-m', '755', folder, state, etc])
  await writeFile(
    join(etc, 'config.json'),
    JSON.stringify({ listen: { host: '127.0.0.1', port: 8080 }, feed: '/none' }),
  )
  const one = ['-v', `${state}:/var/lib/beacon`, '-v', `${etc}:/etc/beacon:ro`, `${repository}:v1.0.0`, 'doctor']
  const ill = await run(['docker', 'run', '--rm', ...one], { env: engine.environment, allowFailure: true })
  equal(ill.exitCode, 7, ill.stdout)
  match(ill.stdout, /^problem +state +user id 65532 cannot write to \/var\/lib\/beacon, .*user id 0$/m)
  match(ill.stdout, /^warning +configuration +the service listens on 127\.0\.0\.1, /m)
  match(ill.stdout, /^warning +feed +\/none cannot be used: /m)
  match(ill.stdout, /^problem +health /m)
  const held = await run(['docker', 'run', '--rm', '-e', 'BATON_HOLDER=/run/hold/socket', ...one], {
    env: engine.environment,
    allowFailure: true,
  })
  match(held.stdout, /^problem +holder +\/run\/hold\/socket cannot be used: .*ENOENT/m)
  for (const { stdout } of [ill, held, { stdout: well.said }])
    ok(!/chown|chmod|linger|install|systemd|\/usr\/local/.test(stdout), stdout)
})

/** in CI hold-waits.ts updates under clients that write, and looks for their rows; table.ts keeps volumes of each kind */
const VOLUMES = [
  ['a named volume', ['-v', 'rows:/var/lib/beacon'], 8091],
  ['an anonymous volume', [], 8092],
] as const

for (const [what, options, port] of VOLUMES) {
  beside.long(`keeps every acknowledged row over an upgrade and a rollback, on ${what}`, async () => {
    const name = options.length > 0 ? 'named' : 'unnamed'
    await engine.docker(
      'run',
      '-d',
      '--name',
      name,
      '-p',
      `${port}:8080`,
      '--read-only',
      ...options,
      `${repository}:v1.0.0`,
    )
    await healthy(engine, name)
    const [{ Source: place }] = (await engine.inspect(name)).Mounts
    const writer = writeRows(`http://127.0.0.1:${port}`)
    await writer.reach(50)
    const updated =
      name === 'named'
        ? await deployed(`deploy --container named --release latest --probation 1s --json`)
        : await deployIn(engine, { container: name, release: 'latest', probationMs: 1000 })
    equal([updated.outcome, updated.from, updated.to], ['updated', 'v1.0.0', 'v1.1.0'])
    ok((updated.downMs ?? 0) > 0)
    match(updated.downMeasured ?? '', /^GET \/healthz on port 8080 every 10 ms/)
    const copy = new DatabaseSync((updated.snapshot ?? '').replace('/var/lib/beacon', place), { readOnly: true })
    equal(copy.prepare('pragma integrity_check').get()?.['integrity_check'], 'ok')
    ok(Number(copy.prepare('select count(*) as rows from logs').get()?.['rows']) >= 50)
    copy.close()
    // The engine knows for how long no container ran: that long nothing can have answered, however busy this machine is. A writer
    // may have waited longer than that, and than the tool says, since it waits for the disk too.
    const { State: old } = await engine.inspect(`${name}-baton-previous`)
    const { State: now } = await engine.inspect(name)
    const stopped = new Date(now.StartedAt).getTime() - new Date(old.FinishedAt).getTime()
    const [said, saw] = [updated.downMs ?? 0, writer.longestMs()]
    process.stdout.write(`  ${name}: none ran for ${stopped} ms, said ${said} ms, writers saw ${Math.round(saw)} ms\n`)
    ok(stopped > 0 && said >= stopped - 20, `said ${said} ms, but none ran for ${stopped} ms`)
    ok(said - saw < Math.max(300, saw / 2), `said ${said} ms, but writers saw ${saw} ms`)
    equal(await (await fetch(`http://127.0.0.1:${port}/`)).text(), 'beacon v1.1.0\n')
    await writer.reach(writer.count() + 50)
    const back = await deployIn(engine, { container: name, release: null, probationMs: 500 })
    equal([back.outcome, back.error?.message], ['rolled_back', undefined])
    equal(await (await fetch(`http://127.0.0.1:${port}/`)).text(), 'beacon v1.0.0\n')
    await writer.reach(writer.count() + 50)
    const acknowledged = await writer.end()
    await engine.docker('rm', '-f', name)
    const database = new DatabaseSync(join(place, 'beacon.db'))
    try {
      equal(database.prepare('pragma integrity_check').get()?.['integrity_check'], 'ok')
      const kept = new Set(
        database
          .prepare('select message from logs')
          .all()
          .map((row) => row['message']),
      )
      equal(
        acknowledged.filter((message) => !kept.has(message)),
        [],
      )
      ok(acknowledged.length >= 150)
    } finally {
      database.close()
    }
  })
}

beside.long(
  'a container of compose is deployed by the image too, where it is lent the project and compose',
  async () => {
    const folder = await mkdtemp(join(labFolder(), 'project-'))
    const name = `${basename(folder)
      .toLowerCase()
      .replaceAll(/[^-_a-z0-9]/g, '')}_beacon_1`
    const file = `services:\n  beacon:\n    image: ${repository}:\${BEACON_TAG}\n    volumes: ['data:/var/lib/beacon']\nvolumes:\n  data: {}\n`
    await writeFile(join(folder, 'compose.yaml'), file)
    await writeFile(join(folder, '.env'), 'BEACON_TAG=v1.0.0\n')
    const compose = (...args: string[]) => run(['docker-compose', ...args], { cwd: folder, env: engine.environment })
    await compose('up', '-d')
    await healthy(engine, name)
    const words = `deploy --container ${name} --release v1.1.0 --probation 500ms --json`
    const alone = await deployed(words)
    equal(alone.exit, 3)
    match(`${alone.hint}`, new RegExp(`add .-v ${folder}:${folder} -v /usr/libexec`))
    // the lab has compose 1, which is no single file
    const host = ['/usr/bin', '/usr/lib', '/usr/share'].map((path) => `${path}:${path}:ro`)
    const program = '/usr/bin/docker-compose:/usr/local/bin/docker-compose:ro'
    const libraries = ['/usr/lib:/lib:ro', ...(existsSync('/usr/lib64') ? ['/usr/lib64:/lib64:ro'] : [])]
    const lent = await deployed(words, [`${folder}:${folder}`, ...host, ...libraries, program])
    equal([lent.outcome, lent.from, lent.to], ['updated', 'v1.0.0', 'v1.1.0'])
    equal(await readFile(join(folder, '.env'), 'utf8'), 'BEACON_TAG=v1.1.0\n')
    const { Id } = await engine.inspect(name)
    await compose('up', '-d')
    equal((await engine.inspect(name)).Id, Id, 'compose takes it for its own, and has nothing to do')
    await compose('down')
  },
)

test.after(close)

test.run()

/** The commands of the guide's `shop`, for this repository's service. What makes an application and its releases is done already. */
function forBeacon(blocks: readonly string[]): string {
  // a row that was written since, and what answers when the data of before are back
  const row = `curl -fsS -H content-type:application/json -d '{"message":"written since"}' http://127.0.0.1:8080/api/logs`
  const wait = 'until docker exec beacon /usr/local/bin/service healthcheck; do sleep 0.2; done'
  const back = `${wait}\ncurl -fsS http://127.0.0.1:8080/ | grep v1.1.0\n`
  ok(blocks.some((block) => block.startsWith('place=')))
  const whole = blocks.map((block) => (block.startsWith('place=') ? `${row}\n${block}${back}` : block)).join('\n')
  const [made, image] = [/^(npm install|npx baton (init|build)|sed) .*\n/gm, /^npx baton image (\S+) .*\n/gm]
  equal([whole.match(made)?.length, whole.match(image)?.length], [5, 2])
  const build = `npm run -s image -- $1 --out '${dist}' --repository ${repository} --push --base ${base}\n`
  return (
    whole
      .replaceAll(made, '')
      .replaceAll(image, base === null ? '' : build)
      .replaceAll('registry.example/shop', repository)
      .replaceAll(/\bshop\b/g, 'beacon')
      .replaceAll(/npx baton deploy container(?! --status)/g, 'deploy/deploy-container.sh --probation 2s')
      .replaceAll('npx baton deploy container', 'deploy/deploy-container.sh')
      // this engine has compose 1
      .replaceAll('docker compose ', 'docker-compose ')
  )
}

/** The last line of the image that updates containers, run with the engine's socket. */
async function deployed(words: string, lent: string[] = []): Promise<EndEvent> {
  const mounts = [`${engine.socketPath}:/var/run/docker.sock`, ...lent].flatMap((one) => ['-v', one])
  const command = ['docker', 'run', '--rm', ...mounts, `${repository}:deploy`, ...words.split(' ')]
  const said = (await run(command, { env: engine.environment, allowFailure: true })).stdout.trim()
  return JSON.parse(said.split('\n').at(-1) ?? '') as EndEvent
}

/** Writes rows one after another for as long as it is let, and remembers those that were answered with 201. */
function writeRows(address: string) {
  const acknowledged: string[] = []
  let going = true
  let [lastAt, longestMs] = [performance.now(), 0]
  const done = (async () => {
    for (let n = 0; going; n++) {
      const message = `row ${n} ${Math.random()}`
      const answer = await fetch(`${address}/api/logs`, {
        method: 'POST',
        body: JSON.stringify({ message }),
        headers: { 'content-type': 'application/json' },
      }).catch(() => null)
      if (answer?.status === 201) {
        acknowledged.push(message)
        longestMs = Math.max(longestMs, performance.now() - lastAt)
        lastAt = performance.now()
      }
      await answer?.arrayBuffer().catch(() => null)
      await new Promise((resolve) => setTimeout(resolve, answer === null ? 20 : PAUSE_MS))
    }
  })()
  return {
    count: () => acknowledged.length,
    /** between two rows that were acknowledged */
    longestMs: () => longestMs,
    async reach(count: number) {
      for (const deadline = Date.now() + 30_000; acknowledged.length < count;) {
        if (Date.now() > deadline) throw new Error(`expected ${count} rows, got ${acknowledged.length}`)
        await new Promise((resolve) => setTimeout(resolve, 20))
      }
    },
    async end() {
      going = false
      await done
      return acknowledged
    },
  }
}
