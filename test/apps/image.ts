// The third place of an adopted application: containers on a real engine. `baton image` makes the images, `baton deploy container`
// moves a container to the next and back. Runs inside the lab: `image.ts FOLDER SERVICE FILE` writes what was seen into FILE.

import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../../deploy/make/place.ts'
import { PATHS, type Place } from './places.ts'
import { run } from '../../deploy/lib/shell.ts'
import { publishBase, startEngine, startRegistry } from '../lab/docker.ts'
import { eventually } from '../lab/systemd.ts'

const [folder = '', service = '', file = ''] = process.argv.slice(2)
const [engine, registry] = [await startEngine(), await startRegistry()]
const PORT = 8095
/** the lab has no network: the Node that `baton` runs on was fetched for the build */
const BATON_CACHE = join(PROJECT, '.cache', 'adopters')

async function inContainer(): Promise<Place> {
  const repository = `${registry.host}/${service}`
  const base = await publishBase(registry.host)
  const baton = async (...command: string[]) =>
    (
      await run(['npx', 'baton', ...command], { cwd: folder, env: { ...engine.environment, BATON_CACHE } })
    ).stdout.trim()
  // the releases are where `baton build` leaves them
  for (const tag of ['v1.0.0', 'v1.1.0'])
    await baton('image', tag, '--repository', repository, '--base', base, '--push')
  const soon = ['--health-interval', '300ms', '--health-start-period', '60s']
  const strict = ['--read-only', '--cap-drop', 'ALL', '--security-opt', 'no-new-privileges']
  await engine.docker('run', '-d', '--name', 'it', '-p', `${PORT}:8080`, ...soon, ...strict, `${repository}:v1.0.0`)
  const isWell = async () => (await engine.inspect('it')).State.Health.Status === 'healthy'
  await eventually('the container is well', isWell, 90_000)
  const answers: Record<string, number> = {}
  const ask = async (target: string) => {
    answers[target] = (await fetch(`http://127.0.0.1:${PORT}${target}`)).status
  }
  for (const target of PATHS) await ask(target)
  const deploy = async (...words: string[]) => {
    const said = await baton('deploy', 'container', '--container', 'it', '--probation', '1s', '--json', ...words)
    return (JSON.parse(said.split('\n').at(-1) ?? '') as { outcome: string }).outcome
  }
  const outcomes = [await deploy('--release', 'latest')]
  await ask('/new.txt')
  outcomes.push(await deploy('--rollback'))
  return { requests: 0, lost: 0, closed: 0, outcomes, answers }
}

try {
  await writeFile(file, JSON.stringify(await inContainer()))
} finally {
  await engine.docker('rm', '-f', 'it', 'it-baton-previous').catch(() => {})
  await engine.stop()
  await registry.stop()
}
