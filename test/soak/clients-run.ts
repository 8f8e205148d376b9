// One soak with clients of every kind: they start, the service is switched there and back, they stop, and all is counted.
// Prints its report as one line of JSON, last. Argument: a JSON object, see `ClientsSoak`.

import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Operation, Status } from '../../agent/words/state.ts'
import { ask, freePort, install } from '../fixtures/install.ts'
import { programRelease, unpack } from '../fixtures/releases.ts'
import { makeCertificate } from '../lab/certificate.ts'
import { spawnClients } from '../lab/clients.ts'
import { startFollowers } from '../lab/followers.ts'
import { counters, moved, neighbour } from '../lab/netns.ts'
import { withDatabase } from './faults/ground.ts'
import type { ClientsSoak, ClientsSoakReport } from './clients.ts'

const soak = JSON.parse(process.argv[2] ?? '') as ClientsSoak
const PROGRAM = join(import.meta.dirname, '../fixtures', soak.isAlone ? 'every-client-alone.ts' : 'every-client.ts')
const began = performance.now()
await using clients = soak.isIsolated ? await neighbour() : null
const folder = await mkdtemp(join(tmpdir(), 'baton-clients-'))
const port = await freePort()
const [socketPath, tls, http2] = ['plain.sock', 'tls.sock', 'http2.sock'].map((name) => join(folder, name)) as [
  string,
  string,
  string,
]
const pair = await writePair()
const listen = [{ host: '0.0.0.0', port }, { path: socketPath }, { path: tls, tls: pair }, { path: http2, tls: pair }]
const [old, next] = [await programRelease('v1.0.0', PROGRAM), await programRelease('v1.1.0', PROGRAM)]
await using home = await install({
  release: old,
  listen,
  update: { probation: `${soak.probationMs}ms`, drainTimeout: `${soak.drainMs}ms`, hangTimeout: '5s' },
})
await unpack(next, home.backup)
await home.start()
const status = async () => (await ask(port, 'GET', '/admin/update/status', home.password)).body as Status

const host = clients?.address ?? '127.0.0.1'
const before = soak.isIsolated ? counters() : null
const load = await spawnClients(
  { host, port, socketPath, tls, http2, slowMs: soak.slowMs, idle: soak.idle },
  clients?.prefix,
)
const followers = await startFollowers({ port, host: '127.0.0.1', ...soak.followers, everyMs: 500 })
const switches: Operation[] = []
for (let done = 0; done < soak.switches; done++) {
  const [pid] = home.pids()
  const answer = await ask(port, 'POST', '/admin/update/rollback', home.password)
  if (answer.status !== 202) throw new Error(`expected 202, got ${answer.status}: ${JSON.stringify(answer.body)}`)
  const { id } = answer.body as Operation
  const ended = await settled(id)
  if (ended.outcome !== 'rolled_back') throw new Error(`${JSON.stringify(ended)}\n${await home.output()}`)
  while (home.pids().includes(pid ?? 0)) await sleep(10)
  switches.push(ended)
  process.stderr.write(
    `${done + 1} of ${soak.switches} switches, ${Math.round((performance.now() - began) / 1000)} s\n`,
  )
}
await sleep(500)
const { kinds, acknowledged } = await load.stop()
const after = soak.isIsolated ? counters() : null
const followed = await followers.stop()
const rows = withDatabase(home.database, (all) => all('SELECT message FROM logs').map(String))
const counts = new Map<string, number>()
for (const row of rows) counts.set(row, (counts.get(row) ?? 0) + 1)
const sum = (of: (operation: Operation) => number | undefined) =>
  switches.reduce((total, operation) => total + (of(operation) ?? 0), 0)

const report: ClientsSoakReport = {
  switches: switches.length,
  seconds: Math.round((performance.now() - began) / 1000),
  kinds,
  followed,
  rowsAcknowledged: acknowledged.length,
  rowsMissing: acknowledged.filter((text) => !counts.has(text)).length,
  rowsDoubled: [...counts.values()].filter((count) => count > 1).length,
  moved: sum(({ handover }) => handover?.moved),
  carried: sum(({ handover }) => handover?.carried),
  cut: sum(({ handover }) => handover?.cut),
  kernel: before === null || after === null ? null : moved(before, after),
}
process.stdout.write(`${JSON.stringify(report)}\n`)
await rm(folder, { recursive: true, force: true })

async function settled(id: string): Promise<Operation> {
  for (const over = Date.now() + 90_000; Date.now() < over; await sleep(30)) {
    const { state, operation } = await status()
    if (state === 'idle' && operation?.id === id) return operation
  }
  throw new Error(`the switch did not end: ${await home.output()}`)
}

async function writePair(): Promise<{ key: string; cert: string }> {
  const { key, cert } = makeCertificate()
  const paths = { key: join(folder, 'key.pem'), cert: join(folder, 'cert.pem') }
  await writeFile(paths.key, key)
  await writeFile(paths.cert, cert)
  return paths
}
