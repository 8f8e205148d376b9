// An application with the habits of the field (test/fixtures/field) in a container, plain and behind a holder: an update, a rollback, a
// broken release, and a kill of each process. It is as good as after a plain restart: on its own port, and heard by its group. In CI
// habits.test.ts has the same behind held sockets, and systemd-habits.test.ts on a host.

import { join } from 'node:path'
import { parseProject } from '../../deploy/make/project.ts'
import { equal, match, ok } from '../assert.ts'
import { buildTags } from '../fixtures/quiet-build.ts'
import { labFolder, openLab } from '../lab/docker.ts'
import { suite } from '../suite.ts'
import { command, heldBefore } from './cutting.ts'
import { BORROWS, logsOf } from './held-service.ts'
import { scriptImages } from './images.ts'
import { until } from './probe.ts'

const { skip, engine, registry, close } = await openLab()
const test = suite('container habits', { timeoutMs: 300_000, skip })
const [NAME, DOOR] = ['field', 'field-door']
const PUBLISHED = ['-p', '127.0.0.1:8260:8080']
const RIGHTS = ['--restart', 'always', '--health-interval', '20s']
let repository = ''

test.before(async () => {
  repository = `${registry.host}/field`
  const dist = join(labFolder(), 'dist')
  const about = { service: 'field', kind: 'script', entry: 'field.js', healthPath: '/health' }
  const tags = ['v1.0.0', 'v1.1.0', 'v1.2.0']
  await buildTags({ project: parseProject(about, join(import.meta.dirname, '../fixtures/field')), out: dist }, tags)
  await scriptImages(engine, registry, { dist, repository, tags, holder: true })
})
test.after(close)

const KINDS: Record<string, (tag: string) => Promise<unknown>> = {
  plain: (tag) => engine.docker('run', '-d', '--name', NAME, ...RIGHTS, ...PUBLISHED, `${repository}:${tag}`),
  async 'behind a holder'(tag) {
    await engine.docker('pull', '-q', `${repository}:holder`)
    const volume = ['-v', 'field-hold:/run/hold']
    await engine.docker('run', '-d', '--name', DOOR, ...RIGHTS, ...volume, ...PUBLISHED, `${repository}:holder`, '8080')
    const held = ['-v', 'field-hold:/run/hold:ro', ...BORROWS]
    return await engine.docker('run', '-d', '--name', NAME, ...RIGHTS, ...held, `${repository}:${tag}`)
  },
}

for (const [kind, start] of Object.entries(KINDS)) {
  const isHeld = kind !== 'plain'
  test(`${kind}: update, rollback, a broken release, and a kill of each process`, async () => {
    await start('v1.0.0')
    await serves('v1.0.0')
    await deployed('v1.1.0', 0)
    await serves('v1.1.0')
    // its own question after a crash must not keep it down
    await kill(NAME)
    await serves('v1.1.0')
    await deployed(null, 0)
    await serves('v1.0.0')
    match(await deployed('v1.2.0', 8), 'DATABASE_URL is not set')
    await serves('v1.0.0')
    for (const name of isHeld ? [DOOR, NAME] : [NAME]) {
      await kill(name)
      await serves('v1.0.0')
    }
    const { gate, ended } = await heldBefore(engine, NAME, 'v1.1.0', 4)
    gate.open()
    await kill(`${NAME}-baton-switch`)
    const { code, out } = await ended
    equal(code, 0, out)
    await gate.close()
    await serves('v1.1.0')
    await engine.docker('rm', '-f', NAME, ...(await engine.names()).filter((name) => name.startsWith(`${NAME}-`)))
  })
}

test.run()

async function deployed(release: string | null, expected: number): Promise<string> {
  const { code, out } = await command(engine.socketPath, NAME, release, ['--probation', '2s']).ended
  equal(code, expected, out)
  return out
}

async function kill(name: string): Promise<void> {
  const { State } = await engine.inspect(name)
  ok(State.Pid > 1, `${name} does not run`)
  process.kill(State.Pid, 'SIGKILL')
}

/** This release answers on its own port, is warm, and hears its group. */
async function serves(tag: string): Promise<void> {
  const well = async (path: string) => {
    const url = `http://127.0.0.1:8260${path}`
    const answer = await fetch(url, { signal: AbortSignal.timeout(5000) }).catch(() => null)
    return answer !== null && answer.status === 200 && (await answer.text()) === tag
  }
  await until(`${tag} to be warm`, () => well('/health')).catch(async (cause: Error) => {
    throw new Error(`${cause.message}: ${await logsOf(engine, NAME)}`)
  })
  await until('its group', () => well('/mdns'))
}
