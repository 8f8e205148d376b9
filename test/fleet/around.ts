// What stands around a fleet and is told of it: HAProxy before its hosts, and Prometheus, which asks them how they are. Real ones.

import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { PROJECT } from '../../deploy/make/place.ts'
import type { Fleet } from '../lab/fleet.ts'
import type { LoadOptions } from '../lab/load.ts'
import type { RoomHost } from '../lab/network.ts'
import { eventually } from '../lab/systemd.ts'

/** HAProxy before all hosts; `hook` takes one out of it and puts it back, by its name in the inventory. */
export async function haproxy(
  fleet: Fleet,
  nameOf: (number: number) => string = (number) => `h${number}`,
): Promise<
  AsyncDisposable & { hook: string; socket: string; load(clients: Partial<LoadOptions>): ReturnType<Fleet['load']> }
> {
  const { room } = fleet
  const socket = join(room.folder, 'haproxy.sock')
  const servers = fleet.hosts.map(({ address }, i) => `  server ${nameOf(i + 1)} ${address}:8080 check inter 500`)
  const text = `global
  stats socket ${socket} level admin
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  option httpchk GET /healthz
frontend door
  bind ${room.address}:8000
  default_backend app
backend app
${servers.join('\n')}
`
  const configuration = join(room.folder, 'haproxy.cfg')
  await writeFile(configuration, text)
  const proxy = fleet.background(['haproxy', '-db', '-q', '-f', configuration])
  const answers = () => room.run(['curl', '-fsS', '-o', '/dev/null', `http://${room.address}:8000/healthz`])
  await eventually('HAProxy', async () => (await answers()).code === 0)
  return {
    socket,
    hook: `${join(PROJECT, 'deploy/fleet/hooks/haproxy.py')} --socket ${socket} --backend app`,
    load: (clients) => fleet.load({ host: room.address, port: 8000, ...clients }),
    [Symbol.asyncDispose]: () => proxy[Symbol.asyncDispose](),
  }
}

/** Prometheus with its blackbox exporter, which asks the hosts how they are once a second. */
export async function prometheusOf(
  fleet: Fleet,
  hosts: readonly RoomHost[],
): Promise<AsyncDisposable & { url: string }> {
  const { room } = fleet
  const relabel = [
    { source_labels: ['__address__'], target_label: '__param_target' },
    { source_labels: ['__param_target'], target_label: 'instance' },
    { target_label: '__address__', replacement: '127.0.0.1:9115' },
  ]
  const scrape = {
    job_name: 'beacon',
    scrape_interval: '1s',
    scrape_timeout: '1s',
    metrics_path: '/probe',
    params: { module: ['http_2xx'] },
    static_configs: [{ targets: hosts.map(({ address }) => `http://${address}:8080/healthz`) }],
    relabel_configs: relabel,
  }
  const [configuration, modules] = [join(room.folder, 'prometheus.yml'), join(room.folder, 'blackbox.yml')]
  await writeFile(configuration, JSON.stringify({ scrape_configs: [scrape] }))
  await writeFile(modules, JSON.stringify({ modules: { http_2xx: { prober: 'http', timeout: '1s' } } }))
  const exporterArgs = ['--config.file', modules, '--web.listen-address', '127.0.0.1:9115']
  const args = ['--config.file', configuration, '--storage.tsdb.path', join(room.folder, 'tsdb')]
  const scope = new AsyncDisposableStack()
  scope.use(fleet.background(['prometheus-blackbox-exporter', ...exporterArgs]))
  scope.use(fleet.background(['prometheus', ...args, '--web.listen-address', '127.0.0.1:9090']))
  const ready = ['curl', '-fsS', 'http://127.0.0.1:9090/-/ready']
  await eventually('Prometheus', async () => (await room.run(ready)).code === 0, 60_000)
  return { url: 'http://127.0.0.1:9090', [Symbol.asyncDispose]: () => scope.disposeAsync() }
}
