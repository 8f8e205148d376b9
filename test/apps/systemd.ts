// The second place of an adopted application: a host with a real systemd, installed by root for a user of its own, updated and rolled
// back under load by the same releases: by its own command, and by `baton deploy host` of the packed package.

import { chmod, cp, mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../../deploy/make/place.ts'
import { bootHost, type Host } from '../lab/systemd.ts'
import { eventsIn, put } from '../lab/managed.ts'
import { PATHS, type Place, startLoads } from './places.ts'

const FEED = '/srv/feed'
const PORT = 8080
/** a host has no network: the Node that `baton` runs on was fetched for the build */
const BATON_CACHE = join(PROJECT, '.cache', 'adopters')

export interface Hosted {
  service: string
  /** folder of the releases */
  feed: string
  /** folder of the installed package */
  kit: string
  sockets: boolean
}

export async function onSystemd({ feed, kit, ...about }: Hosted): Promise<Place> {
  // a host sees this machine's disk, but has a /tmp of its own
  const seen = await mkdtemp(join(PROJECT, '.cache', 'host-feed-'))
  try {
    await cp(feed, seen, { recursive: true })
    await cp(kit, join(seen, 'kit'), { recursive: true })
    await chmod(seen, 0o755)
    await using host = await bootHost()
    await host.ok('mkdir', '-p', FEED)
    await host.ok('mount', '--bind', seen, FEED)
    return await adoptedOn(host, about)
  } finally {
    await rm(seen, { recursive: true, force: true })
  }
}

async function adoptedOn(host: Host, { service, sockets }: Pick<Hosted, 'service' | 'sockets'>): Promise<Place> {
  const act = async (...command: string[]) => {
    const options = { timeoutMs: 240_000, env: { BATON_CACHE } }
    const { code, stdout, stderr } = await host.run([...command, '--json'], options)
    if (code !== 0) throw new Error(`${command.join(' ')}: ended with ${code}: ${stdout.slice(-2000)} ${stderr}`)
    return eventsIn(stdout).at(-1) ?? {}
  }
  const installer = [
    'sh',
    `${FEED}/v1.0.0/install.sh`,
    'install',
    '-y',
    '--feed',
    FEED,
    '--listen',
    `127.0.0.1:${PORT}`,
  ]
  await act(...installer, '--no-start')
  const path = `/etc/${service}/config.json`
  const config = JSON.parse(await host.ok('cat', path)) as object
  await put(host, path, JSON.stringify({ ...config, update: { probation: '2s', drainTimeout: '5s' } }))
  await act(service, 'start')

  const answers: Record<string, number> = {}
  const ask = async (target: string) => {
    const said = ['curl', '-s', '-o', '/dev/null', '-w', '%{http_code}', `http://127.0.0.1:${PORT}${target}`]
    answers[target] = Number(await host.ok(...said))
  }
  for (const target of PATHS) await ask(target)
  const load = await startLoads({ port: PORT, sockets, prefix: await host.network() })
  const outcomes: unknown[] = []
  const operate = async (...command: string[]) => void outcomes.push((await act(...command))['outcome'])
  await operate(service, 'upgrade', '-y')
  await ask('/new.txt')
  await operate(service, 'rollback', '-y')
  const baton = ['node', `${FEED}/kit/lib/esm/baton.js`, 'deploy', 'host', '--service', service]
  await operate(...baton, 'v1.1.0')
  await operate(...baton, '--rollback')
  const total = await load.stop()
  const user = (await host.ok('stat', '-c', '%U', `/opt/${service}/.${service}`)).trim()
  await act(service, 'doctor')
  await act(service, 'uninstall', '-y')
  return {
    ...total,
    outcomes: outcomes.map(String),
    answers: { ...answers, [`unpacked by ${user}`]: user === service ? 200 : 0 },
  }
}
