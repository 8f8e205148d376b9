// The second place of an adopted application: a host with a real systemd, installed by root for a user of its own, updated and rolled
// back under load by the same releases.

import { chmod, cp, mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../../deploy/build/place.ts'
import { bootHost, type Host } from '../lab/systemd.ts'
import { eventsIn, put } from '../lab/managed.ts'
import { spawnLoad } from '../lab/load.ts'
import { PATHS, type Place } from './places.ts'

const FEED = '/srv/feed'
const PORT = 8080

export async function onSystemd(service: string, feed: string): Promise<Place> {
  // a host sees this machine's disk, but has a /tmp of its own
  const seen = await mkdtemp(join(PROJECT, '.cache', 'host-feed-'))
  try {
    await cp(feed, seen, { recursive: true })
    await chmod(seen, 0o755)
    await using host = await bootHost()
    await host.ok('mkdir', '-p', FEED)
    await host.ok('mount', '--bind', seen, FEED)
    return await adoptedOn(host, service)
  } finally {
    await rm(seen, { recursive: true, force: true })
  }
}

async function adoptedOn(host: Host, service: string): Promise<Place> {
  const act = async (...command: string[]) => {
    const { code, stdout, stderr } = await host.run([...command, '--json'], { timeoutMs: 240_000 })
    const last = eventsIn(stdout).at(-1) ?? {}
    if (code !== 0) throw new Error(`${command.join(' ')}: ended with ${code}: ${JSON.stringify(last)} ${stderr}`)
    return last
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
  await put(host, path, JSON.stringify({ ...config, update: { probationMs: 2000, drainMs: 5000 } }))
  await act(service, 'start')

  const answers: Record<string, number> = {}
  const ask = async (target: string) => {
    const said = ['curl', '-s', '-o', '/dev/null', '-w', '%{http_code}', `http://127.0.0.1:${PORT}${target}`]
    answers[target] = Number(await host.ok(...said))
  }
  for (const target of PATHS) await ask(target)
  const options = { prefix: await host.network() }
  const common = { port: PORT, afterClose: 'end' as const }
  const loads = [
    await spawnLoad({ ...common, mode: 'keepalive', clients: 8, path: '/hello.txt', thinkMs: [5, 40] }, options),
    await spawnLoad({ ...common, mode: 'keepalive', clients: 4, path: '/work', thinkMs: [20, 80] }, options),
    await spawnLoad({ ...common, mode: 'fresh', clients: 4, path: '/healthz', thinkMs: [10, 50] }, options),
  ]
  const updated = await act(service, 'upgrade', '-y')
  await ask('/new.txt')
  const back = await act(service, 'rollback', '-y')
  const totals = await Promise.all(loads.map((load) => load.stop()))
  const sum = (key: 'requests' | 'lost' | 'closed') => totals.reduce((all, total) => all + total[key], 0)
  const user = (await host.ok('stat', '-c', '%U', `/opt/${service}/.${service}`)).trim()
  await act(service, 'doctor')
  await act(service, 'uninstall', '-y')
  return {
    requests: sum('requests'),
    lost: sum('lost'),
    closed: sum('closed'),
    outcomes: [updated, back].map(({ outcome }) => String(outcome)),
    answers: { ...answers, [`unpacked by ${user}`]: user === service ? 200 : 0 },
  }
}
