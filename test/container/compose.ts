// Containers of a compose project, with the real docker-compose: its file stays the truth, and going back goes by image id.

import { access, chmod, lchown, mkdir, readFile, readlink, rename, stat, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { isLong, suite } from '../suite.ts'
import { equal, match, ok, rejects, withCode } from '../assert.ts'
import { run } from '../../deploy/lib/shell.ts'
import { witnessed } from '../fixtures/deploy-container.ts'
import { labFolder, ofCompose, openLab, publish } from '../lab/docker.ts'
import { command } from './cutting.ts'
import { deployIn, healthy, probeImage, publishGood, statusIn } from './probe.ts'

const { skip, engine, registry, close } = await openLab()
const test = suite('container of compose', { timeoutMs: 180_000, skip })

test.before(async () => {
  await publishGood(registry.host)
  await publish(
    registry.host,
    'beacon',
    ['v1.2.1'],
    probeImage('v1.2.1', { Entrypoint: ['/bin/sh', '-c', 'exit 3'], Cmd: null }),
  )
})

test('sets the variable in .env, keeps the data, and goes back with --rollback', async () => {
  const { name, environment, compose } = await project(
    'variable',
    '${BEACON_TAG:-latest}',
    'OTHER=1\nBEACON_TAG=v1.0.0\n# end\n',
  )
  const dry = await deployIn(engine, { container: name, release: 'v1.1.0', dryRun: true })
  ok(
    dry.events.some(
      (event) => event.event === 'plan' && event.plan.some((line) => line.startsWith('set BEACON_TAG=v1.1.0')),
    ),
  )
  equal(await readFile(environment, 'utf8'), 'OTHER=1\nBEACON_TAG=v1.0.0\n# end\n')

  const updated = await deployIn(engine, { container: name, release: 'v1.1.0' })
  equal([updated.outcome, updated.from, updated.to, updated.error?.message], ['updated', 'v1.0.0', 'v1.1.0', undefined])
  ok(
    updated.events.some((event) => event.event === 'note' && /restart policy is still `no`/.test(event.message)),
    'what a dead engine means for it is said',
  )
  equal(await readFile(environment, 'utf8'), 'OTHER=1\nBEACON_TAG=v1.1.0\n# end\n')
  equal((await stat(environment)).mode & 0o777, 0o600)
  await runs(name, 'v1.1.0')
  const { Id } = await engine.inspect(name)
  await compose('up', '-d')
  equal((await engine.inspect(name)).Id, Id, 'compose takes it for its own, and has nothing to do')

  await engine.docker('image', 'prune', '--force')
  const back = await deployIn(engine, { container: name, release: null })
  equal([back.outcome, back.to], ['rolled_back', 'v1.0.0'])
  equal(await readFile(environment, 'utf8'), 'OTHER=1\nBEACON_TAG=v1.0.0\n# end\n')
  await runs(name, 'v1.0.0')
  await writeFile(environment, 'BEACON_TAG=v1.1.0\n')
  await compose('up', '-d')
  const moved = await rejects(deployIn(engine, { container: name, release: null }), withCode('no_backup'))
  match(moved.message, /created by hand or by compose since the last deployment/)
})

test('puts the old release back when the new one fails, keeps no container of it, and passes over it as `latest` all the same', async () => {
  await publish(registry.host, 'failing', ['v1.0.0'], probeImage('v1.0.0'))
  const exits = probeImage('v1.2.1', { Entrypoint: ['/bin/sh', '-c', 'exit 3'], Cmd: null })
  await publish(registry.host, 'failing', ['v1.2.1', 'latest'], exits)
  const files = { repository: 'failing' }
  const { name, environment } = await project('failing', '${BEACON_TAG}', 'BEACON_TAG=v1.0.0\n', files)
  const ended = await deployIn(engine, { container: name, release: 'latest' })
  equal(ended.outcome, 'reverted')
  equal(await readFile(environment, 'utf8'), 'BEACON_TAG=v1.0.0\n')
  await runs(name, 'v1.0.0')
  equal((await engine.names()).includes(`${name}-baton-failed`), false)
  await rejects(deployIn(engine, { container: name, release: 'latest' }), /v1\.2\.1 has failed here before$/)
})

test('a link of another user leads no write out of the project; a link of root’s does, and stays', async () => {
  const { name, environment } = await project('linked', '${BEACON_TAG}', 'BEACON_TAG=v1.0.0\n')
  const target = join(labFolder(), 'of-root.env')
  await rename(environment, target)
  await symlink(target, environment)
  await lchown(environment, 1000, 1000)
  for (const dryRun of [true, false]) {
    const { message } = await rejects(
      deployIn(engine, { container: name, release: 'v1.1.0', dryRun }),
      withCode('refused'),
    )
    match(message, /\/linked\/\.env is a link owned by user id 1000: /)
  }
  equal(await readFile(target, 'utf8'), 'BEACON_TAG=v1.0.0\n')
  await runs(name, 'v1.0.0')

  await lchown(environment, 0, 0)
  equal((await deployIn(engine, { container: name, release: 'v1.1.0' })).outcome, 'updated')
  equal([await readlink(environment), await readFile(target, 'utf8')], [target, 'BEACON_TAG=v1.1.0\n'])
})

test.long('going back takes no longer with compose than without it', async () => {
  const { name } = await project('timed', '${BEACON_TAG}', 'BEACON_TAG=v1.0.0\n')
  await engine.docker('run', '-d', '--name', 'plain', `${registry.host}/beacon:v1.0.0`)
  await healthy(engine, 'plain')
  const [composed, plain] = [
    await deployIn(engine, { container: name, release: 'v1.2.1' }),
    await deployIn(engine, { container: 'plain', release: 'v1.2.1' }),
  ]
  equal([composed.outcome, plain.outcome], ['reverted', 'reverted'])
  const [downMs, plainMs] = [composed.downMs ?? Infinity, plain.downMs ?? 0]
  ok(plainMs > 0 && downMs < 2 * plainMs + 1000, `with compose ${downMs} ms, without ${plainMs} ms`)
})

test.long(
  'a file that names `latest` itself is followed; any other tag is refused, with the line to write',
  async () => {
    await publish(registry.host, 'moved', ['latest'], probeImage('v1.0.0'))
    const { name } = await project('literal', 'latest', '', { repository: 'moved' })
    await publish(registry.host, 'moved', ['v1.1.0', 'latest'], probeImage('v1.1.0'))
    const error = await rejects(deployIn(engine, { container: name, release: 'v1.1.0' }), withCode('refused'))
    match((error as { hint?: string }).hint ?? '', /BEACON_TAG/)
    equal((await deployIn(engine, { container: name, release: 'latest' })).outcome, 'updated')
    await runs(name, 'v1.1.0')
    equal((await deployIn(engine, { container: name, release: null })).outcome, 'rolled_back')
    await runs(name, 'v1.0.0')
  },
)

test.long(
  'cut short after the old one was stopped: a second run finishes it, and only then the file says so',
  async () => {
    const { name, environment } = await project('cut', '${BEACON_TAG:-latest}', 'BEACON_TAG=v1.0.0\n')
    let isCut = false
    const stopped = await deployIn(engine, { container: name, release: 'v1.1.0' }, (client) =>
      witnessed(client, (_, change) => {
        isCut ||= change === 'start'
        if (isCut) throw new Error('cut short') // and nothing after it is done either
      }),
    )
    equal(stopped.error?.code, 'undo_failed')
    equal(await readFile(environment, 'utf8'), 'BEACON_TAG=v1.0.0\n')
    equal((await deployIn(engine, { container: name, release: 'v1.1.0' })).outcome, 'updated')
    await runs(name, 'v1.1.0')
    equal(await readFile(environment, 'utf8'), 'BEACON_TAG=v1.1.0\n')
    equal(
      await engine.docker('ps', '-aq', '--filter', `name=${name}-baton`),
      '',
      'nothing that compose would take for its own',
    )
  },
)

test.long('refuses a service that is scaled', async () => {
  const { compose, name } = await project('scaled', '${BEACON_TAG:-latest}', 'BEACON_TAG=v1.0.0\n')
  await compose('up', '-d', '--scale', 'beacon=2')
  await rejects(deployIn(engine, { container: name, release: 'v1.1.0' }), /has 2 containers/)
})

test.long(
  'an image that says it is a compose project starts no program of its own on the host, and is not believed',
  async () => {
    // what it brings stands in its volume, where compose would look for the program on the PATH that the probe sets
    const marker = join(labFolder(), 'taken')
    const program = join(labFolder(), 'docker-compose-of-the-image')
    await writeFile(program, `#!/bin/sh\nid -u > ${marker}\n`, { mode: 0o755 })
    const image = (version: string, labels: Record<string, string>) => {
      const probe = probeImage(version)
      const files = {
        '/data/compose.yml': 'services:\n  taken:\n    image: "x:${PATH}"\n',
        '/data/v0.0.0-baton-probe/docker-compose': { from: program },
      }
      const Labels = { ...(probe.config['Labels'] as object), ...labels }
      return { files: { ...probe.files, ...files }, config: { ...probe.config, Labels } }
    }
    const { DockerRootDir } = JSON.parse(await engine.docker('info', '--format', '{{json .}}'))
    const folder = join(DockerRootDir, 'volumes/taken-data/_data')
    const labels = {
      'com.docker.compose.project': 'taken',
      'com.docker.compose.service': 'taken',
      'com.docker.compose.project.working_dir': folder,
      'com.docker.compose.project.config_files': 'compose.yml',
    }
    const start = async (name: string, tag: string, more: string[] = []) => {
      await engine.docker(
        'run',
        '-d',
        '--name',
        name,
        '-v',
        'taken-data:/data',
        ...more,
        `${registry.host}/taken:${tag}`,
      )
      await healthy(engine, name)
      await access(join(folder, 'v0.0.0-baton-probe/docker-compose'))
    }
    const refused = async (name: string, release: string | null, dryRun: boolean) =>
      (await rejects(deployIn(engine, { container: name, release, dryRun }), withCode('refused'))).message

    await publish(registry.host, 'taken', ['v1.0.0'], image('v1.0.0', labels))
    await publish(registry.host, 'taken', ['v1.1.0'], image('v1.1.0', {}))
    await start('taken', 'v1.0.0')
    if (isLong)
      match(
        await refused('taken', 'v1.1.0', true),
        /the image of `taken` has labels that are reserved for containers created by compose or by this command: com\.docker\.compose\./,
      )
    match(await refused('taken', 'v1.1.0', false), /the image of `taken` has labels that are reserved/)
    match(await refused('taken', null, false), /the image of `taken` has labels that are reserved/)
    await engine.docker('rm', '-f', 'taken')

    // nor where somebody else gave these labels: the volume is the image's nevertheless, also by a link that leads there
    const given = (at: string) =>
      Object.entries({ ...labels, 'com.docker.compose.project.working_dir': at }).flatMap((label) => [
        '--label',
        label.join('='),
      ])
    const linked = join(labFolder(), 'linked-volume')
    await run(['ln', '-s', folder, linked])
    for (const at of isLong ? [folder, linked] : [linked]) {
      await start('taken', 'v1.1.0', given(at))
      match(await refused('taken', 'v1.0.0', true), /taken:v1\.0\.0 has labels/)
      await publish(registry.host, 'taken', ['v1.2.0'], image('v1.2.0', {}))
      match(
        await refused('taken', 'v1.2.0', true),
        /the compose project of `taken` is at .*, which containers can write/,
      )
      await engine.docker('rm', '-f', 'taken')
    }
    // a folder of the host that the container may write is no better
    const project = join(labFolder(), 'lent')
    await mkdir(project)
    await writeFile(join(project, 'compose.yml'), 'services: {}\n')
    await start('taken', 'v1.1.0', [...given(project), '-v', `${project}:/project`])
    match(await refused('taken', 'v1.2.0', true), /which containers can write/)
    await engine.docker('rm', '-f', 'taken')

    // an image cannot say either what ran before it, which names files of the host too
    const origin = { format: 1, from: 'v6.6.6', predecessor: 'x', image: 'x', compose: { environmentFile: marker } }
    await publish(
      registry.host,
      'taken',
      ['v1.3.0'],
      image('v1.3.0', { 'baton.recreated-from': JSON.stringify(origin) }),
    )
    await start('taken', 'v1.3.0')
    equal((await statusIn(engine, 'taken')).from, null)
    match(await refused('taken', null, true), /has labels that .*: baton\.recreated-from/)
    await engine.docker('rm', '-f', 'taken')
    await rejects(access(marker))
  },
)

test('compose starts in an environment that no file and no caller decides, and a release is tried in an env file only', async () => {
  const { name, environment, folder } = await project('fixed', '${BEACON_TAG}', 'BEACON_TAG=v1.0.0\n', {
    more: '    environment: { A: "${PATH}", B: "${LD_PRELOAD:-}", C: "${FROM_SHELL:-none}" }\n',
  })
  const [log, bin] = [join(folder, 'log'), join(folder, 'bin')]
  await mkdir(bin)
  const real = (await run(['sh', '-c', 'command -v docker-compose'])).stdout.trim()
  const script = `#!/bin/sh\n{ pwd; env; } >> ${log}\nexec ${real} "$@"\n`
  await writeFile(join(bin, 'docker-compose'), script)
  await chmod(join(bin, 'docker-compose'), 0o755)
  const shell = { PATH: `${bin}:.:${process.env['PATH']}`, FROM_SHELL: 'yes it is', SECRET: 'hidden' }
  const ended = await command(engine.socketPath, name, 'v1.1.0', ['--dry-run'], shell).ended
  equal(ended.code, 0, ended.out)
  match(ended.out, /set BEACON_TAG=v1\.1\.0 in /)
  const said = (await readFile(log, 'utf8')).trim().split('\n')
  const names = new Set(said.filter((line) => line.includes('=')).map((line) => line.split('=')[0]))
  for (const own of ['_', 'PWD', 'OLDPWD', 'SHLVL']) names.delete(own) // the script's own shell
  for (const name of names) ok(/^(PATH|HOME|LC_ALL|DOCKER_HOST|DOCKER_CONFIG)$/.test(name ?? ''), `got ${name}`)
  equal(
    said.filter((line) => /baton-probe|hidden|yes it is/.test(line)),
    [],
  )
  equal([...new Set(said.filter((line) => line.startsWith('/')))], ['/'])
  equal(await readFile(environment, 'utf8'), 'BEACON_TAG=v1.0.0\n')
})

test.long('refuses a variable that another service takes too; with --with-shared says which one moves', async () => {
  const { name, environment } = await project('shared', '${BEACON_TAG:-latest}', 'BEACON_TAG=v1.0.0\n', {
    more: `  worker:\n    image: ${registry.host}/beacon:\${BEACON_TAG:-latest}\n  other:\n    image: ${registry.host}/beacon:v1.0.0\n`,
  })
  const error = await rejects(
    deployIn(engine, { container: name, release: 'v1.1.0', dryRun: true }),
    withCode('refused'),
  )
  match(
    error.message,
    /^`worker` in the same project also uses BEACON_TAG: the next `docker compose up` would switch it to the new image, untested$/,
  )
  match((error as { hint?: string }).hint ?? '', /--with-shared/)
  const ended = await deployIn(engine, { container: name, release: 'v1.1.0', withShared: true, dryRun: !isLong })
  equal(ended.outcome, isLong ? 'updated' : 'planned')
  ok(ended.events.some((event) => event.event === 'warning' && /`worker` .* also uses BEACON_TAG/.test(event.message)))
  ok(
    ended.events.some(
      (event) => event.event === 'plan' && event.plan.some((line) => line.endsWith('also updates worker')),
    ),
  )
  if (!isLong) return
  equal(await readFile(environment, 'utf8'), 'BEACON_TAG=v1.1.0\n')
  await runs(name, 'v1.1.0')
})

test.after(close)

test.run()

/** A project that is up, healthy and has data. */
async function project(
  name: string,
  tag: string,
  environmentText: string,
  { repository = 'beacon', more = '' }: { repository?: string; more?: string } = {},
) {
  const folder = join(labFolder(), name)
  await mkdir(folder)
  const environment = join(folder, '.env')
  await writeFile(environment, environmentText, { mode: 0o600 })
  const file = `services:\n  beacon:\n    image: ${registry.host}/${repository}:${tag}\n    volumes: ['data:/data']\n${more}volumes:\n  data: {}\n`
  await writeFile(join(folder, 'compose.yaml'), file)
  const compose = (...args: string[]) => run(['docker-compose', ...args], { cwd: folder, env: engine.environment })
  await compose('up', '-d')
  const container = ofCompose(name, 'beacon')
  await healthy(engine, container)
  await engine.docker('exec', container, '/bin/busybox', 'touch', '/data/here')
  return { name: container, environment, compose, folder }
}

async function runs(name: string, version: string): Promise<void> {
  await healthy(engine, name)
  equal((await engine.inspect(name)).Config.Labels['org.opencontainers.image.version'], version)
  await engine.docker('exec', name, '/bin/busybox', 'ls', '/data/here')
}
