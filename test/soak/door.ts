// Two ways in which systemd holds a listening socket while no process lives, measured with the same program on the same host: a
// `.socket` unit, and the descriptor store. What is decided from it is in docs/decisions/0023-somebody-holds-the-door.md.

import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { storedNameOf } from '../../agent/sockets/stored-names.ts'
import { spawnLoad, type Totals } from '../lab/load.ts'
import { put } from '../lab/managed.ts'
import { bootHost, eventually, type Host } from '../lab/systemd.ts'

const TIMES = 10
const PORT = 8080
const PROGRAM = join(import.meta.dirname, '../fixtures/held.ts')
const WAYS = ['neither', '.socket unit', 'descriptor store'] as const
type Way = (typeof WAYS)[number]

interface Measured {
  way: Way
  restarts: Totals
  kills: Totals
  /** of a client after `systemctl stop`, and at the end of a crash loop */
  afterStop: string
  afterLoop: string
  /** milliseconds, of one `systemctl restart` */
  restartMs: number
}

/** The table, in Markdown. */
export async function soakDoor(): Promise<string> {
  const measured: Measured[] = []
  for (const way of WAYS) {
    await using host = await bootHost()
    measured.push(await measure(host, way))
  }
  const refused = ({ errors }: Totals) =>
    Object.entries(errors).reduce((sum, [error, times]) => sum + (error.startsWith('connect: E') ? times : 0), 0)
  const rows = measured.map(({ way, restarts, kills, afterStop, afterLoop, restartMs }) =>
    [
      way,
      `${refused(restarts)} + ${restarts.lost - refused(restarts)} of ${restarts.requests}`,
      `${refused(kills)} + ${kills.lost - refused(kills)} of ${kills.requests}`,
      `${restarts.longestStallMs} / ${kills.longestStallMs}`,
      restartMs,
      afterStop,
      afterLoop,
    ].join(' | '),
  )
  return [
    `| | ${TIMES} restarts: refused + lost | ${TIMES} × kill -9: refused + lost | longest wait, ms | a restart, ms | after a stop | after a crash loop |`,
    '| --- | --: | --: | --: | --: | --- | --- |',
    ...rows.map((row) => `| ${row} |`),
  ].join('\n')
}

async function measure(host: Host, way: Way): Promise<Measured> {
  await put(host, '/etc/systemd/system/held.service', unit(way))
  if (way === '.socket unit') await put(host, '/etc/systemd/system/held.socket', SOCKET)
  await host.ok('systemctl', 'daemon-reload')
  await host.ok('systemctl', 'start', ...(way === '.socket unit' ? ['held.socket'] : []), 'held.service')
  const prefix = await host.network()
  const load = () =>
    spawnLoad(
      { mode: 'fresh', clients: 8, port: PORT, thinkMs: [5, 15], hangMs: 20_000, failurePauseMs: 5 },
      { prefix },
    )
  const pid = async () => (await host.ok('systemctl', 'show', '--value', '--property=MainPID', 'held')).trim()

  const restarting = await load()
  await sleep(500)
  const began = performance.now()
  for (let time = 0; time < TIMES; time++) await host.ok('systemctl', 'restart', 'held')
  const restartMs = Math.round((performance.now() - began) / TIMES)
  await sleep(500)
  const restarts = await restarting.stop()

  const killing = await load()
  await sleep(500)
  for (let time = 0; time < TIMES; time++) {
    const before = await pid()
    await host.ok('kill', '-KILL', before)
    await eventually('the next process', async () => {
      const [now, state] = [await pid(), await host.run(['systemctl', 'is-active', 'held'])]
      return now !== before && now !== '0' && state.stdout.trim() === 'active'
    })
  }
  await sleep(500)
  const kills = await killing.stop()

  await host.run(['systemctl', 'stop', 'held'])
  const afterStop = await answerOf(host)
  // from here on it dies at once
  await put(
    host,
    '/etc/systemd/system/held.service.d/loop.conf',
    '[Unit]\nStartLimitIntervalSec=60\nStartLimitBurst=3\n[Service]\nExecStart=\nExecStart=/bin/false\n',
  )
  await host.ok('systemctl', 'daemon-reload')
  await host.run(['systemctl', 'reset-failed', 'held.service'])
  await host.run(['systemctl', 'restart', 'held']) // a client may have started it
  const isOver = await eventually('the end of the loop', async () => {
    const { stdout } = await host.run(['systemctl', 'show', '--value', '--property=SubState', 'held'])
    return stdout.trim() === 'failed'
  }).catch(() => false) // a socket unit may start it again and again
  return { way, restarts, kills, afterStop, afterLoop: `${isOver ? '' : 'no end; '}${await answerOf(host)}`, restartMs }
}

const SOCKET = `[Socket]
ListenStream=127.0.0.1:${PORT}
FileDescriptorName=${storedNameOf('x')}
`

function unit(way: Way): string {
  return `[Unit]
StartLimitIntervalSec=10
StartLimitBurst=40
[Service]
Type=notify
NotifyAccess=all
ExecStart=${process.execPath} --disable-warning=ExperimentalWarning ${PROGRAM}
Environment=HELD_PORT=${PORT}
Restart=always
RestartSec=100ms
${way === 'descriptor store' ? 'FileDescriptorStoreMax=8' : ''}
`
}

async function answerOf(host: Host): Promise<string> {
  const { code, stdout } = await host.run([
    'curl',
    '-sS',
    '--max-time',
    '5',
    '-o',
    '/dev/null',
    '-w',
    '%{http_code}',
    `http://127.0.0.1:${PORT}/`,
  ])
  if (code === 7) return 'refused'
  if (code === 0) return `answered ${stdout}`
  return code === 28 ? 'waits' : `curl ends with ${code}`
}
