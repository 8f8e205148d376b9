// An update behind a holder, in which somebody is killed or told to end before a change of the engine: the command, what does the
// switch, the engine, the old and the new application, the holder. Under strict clients. The service answers again without anybody's
// help, one container serves in the end, two of a service that may run once never do, and every acknowledged row is there.
// In CI, hold-waits.ts kills the switcher, hold.ts the application, the holder and the engine. What is killed while a container moves in or
// out is in hold-cut.ts.

import { readdir } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { equal, match, ok } from '../assert.ts'
import { openLab } from '../lab/docker.ts'
import { suite } from '../suite.ts'
import { heldBefore } from './cutting.ts'
import {
  answers,
  cable,
  heldService,
  type HeldService,
  keptRows,
  type Seen,
  strictClients,
  tell,
  uncable,
  watchDatabase,
  whole,
} from './held-service.ts'
import { serviceImages, switching } from './images.ts'
import { healthy, until } from './probe.ts'

const { skip, engine, registry, close } = await openLab()
const test = suite('container hold kills', { timeoutMs: 300_000, skip })
type Kind = 'stop-first' | 'start-first'
const KINDS: Kind[] = ['stop-first', 'start-first']
const VICTIMS = [
  'the command',
  'the switcher',
  'the engine',
  'the old application',
  'the new application',
  'the holder',
]
type Signal = 'SIGKILL' | 'SIGTERM'

interface Kill {
  kind: Kind
  /** before which change of CHANGES, from 1 */
  n: number
  victim: string
  signal: Signal
}

/** Before the fourth, both containers live: the new one waits, or serves beside the old one. */
const CHANGES = ['rename', 'rename', 'start', 'stop', 'update', 'update', 'rename']
const BOTH_LIVE = 4
const ANSWERS_MS = 15_000
const kills: Kill[] = KINDS.flatMap((kind) =>
  CHANGES.flatMap((_, i) =>
    VICTIMS.filter((victim) => lives(victim, i + 1)).flatMap((victim) =>
      (['SIGKILL', 'SIGTERM'] as const).map((signal) => ({ kind, n: i + 1, victim, signal })),
    ),
  ),
)
const services: Partial<Record<Kind, HeldService>> = {}
/** what was acknowledged in all cases of a service */
const rows = new Map<HeldService, string[]>()

test.before(async () => {
  const { address } = await cable()
  const repository = await serviceImages(engine, registry)
  services['stop-first'] = await heldService(engine, { name: 'alone', port: 8250, repository, address })
  const twice = await switching(engine, repository, 'start-first')
  services['start-first'] = await heldService(engine, { name: 'both', port: 8251, repository: twice, address })
})

for (const kill of kills)
  test(`${kill.kind}: ${kill.signal} of ${kill.victim} before change ${kill.n} (${CHANGES[kill.n - 1]}): one serves in the end, by itself`, async () => {
    const service = services[kill.kind] as HeldService
    const old = await tagOf(service.app)
    const to = old === 'v1.0.0' ? 'v1.1.0' : 'v1.0.0'
    // else the last change but one is the removal of what the deployment before has kept
    await engine.docker('rm', '-f', `${service.app}-baton-previous`).catch(() => null)
    const overlaps = kill.kind === 'start-first' ? null : await watchDatabase(engine, service.app)
    const clients = await strictClients(service, await cable())
    const { code, out } = await killed(kill, service, to)
    const seen = await clients.stop()
    tell(`${kill.n}, ${kill.signal} of ${kill.victim}: ended with ${code}`, seen)
    rows.set(service, [...(rows.get(service) ?? []), ...seen.ids])
    const now = await tagOf(service.app)
    // with 9 the command could not see how it ended, and without a code it was killed itself
    if (code === 0 || code === 8) equal(now, code === 0 ? to : old, out)
    else
      ok(
        (code === 9 && kill.victim === 'the engine') || (code === null && kill.signal === 'SIGKILL'),
        `${code}: ${out}`,
      )
    if (kill.victim === 'the new application' && code === 8) match(out, /the new container exited with/)
    clean(kill, seen)
    if (overlaps !== null) equal((await overlaps.stop()).most, 1, 'containers that had the database open at once')
    equal((await engine.inspect(service.app)).HostConfig.RestartPolicy.Name, 'always')
    equal(await gates(service), [])
    await engine.docker('rm', '-f', `${service.app}-baton-failed`).catch(() => null)
  })

for (const kind of KINDS)
  test(`${kind}: after all that, every acknowledged row is there`, async () => {
    const service = services[kind] as HeldService
    await keptRows(engine, service.app, rows.get(service) ?? [])
  })

test.after(async () => {
  await uncable()
  await close()
})

test.run()

/** Whether there is such a process before this change. */
function lives(victim: string, n: number): boolean {
  if (victim === 'the old application') return n <= BOTH_LIVE
  return victim !== 'the new application' || n >= BOTH_LIVE
}

/** Ends a deployment's victim before a change; resolves when everything has come to its end: the switcher's engine is the gate, too. */
async function killed({ victim, signal, n }: Kill, { app, door, address, port }: HeldService, to: string) {
  const { gate, child, ended } = await heldBefore(engine, app, to, n)
  try {
    equal(gate.changes, CHANGES.slice(0, n))
    if (victim === 'the engine') {
      await (signal === 'SIGKILL' ? engine.kill() : engine.stop())
      gate.open()
      await engine.start()
    } else {
      // the names pass from the old one to the new one with the first two changes
      const names: Record<string, string> = {
        'the switcher': `${app}-baton-switch`,
        'the old application': n === 1 ? app : `${app}-baton-predecessor`,
        'the new application': app,
        'the holder': door,
      }
      if (victim === 'the command') child.kill(signal)
      else process.kill((await engine.inspect(names[victim] ?? '')).State.Pid, signal)
      await sleep(200)
      gate.release()
    }
    const began = performance.now()
    await until('an answer', () => answers(address, port))
    const tookMs = performance.now() - began
    ok(tookMs < ANSWERS_MS, `${tookMs} ms`)
    const end = await ended
    await settled(app)
    return end
  } finally {
    await gate.close()
  }
}

/** One container has the service's name and is well, and nobody is at work any more. */
async function settled(app: string): Promise<void> {
  await until('the end', async () => {
    const names = (await engine.names()).filter((name) => name.startsWith(`${app}-baton-`))
    if (names.some((name) => /-(successor|predecessor|reverting)$/.test(name))) return false
    if (!names.includes(`${app}-baton-switch`)) return true
    const { State } = await engine.inspect(`${app}-baton-switch`).catch(() => ({ State: {} }))
    return !State.Running && !State.Restarting
  })
  await healthy(engine, app)
}

/** Only who serves can lose something: what it had accepted. Only without a holder is anybody refused. */
function clean({ kind, n, victim, signal }: Kill, seen: Seen): void {
  if (victim === 'the engine' || victim === 'the holder') return
  equal(seen.refused, 0, JSON.stringify(seen.errors))
  const serves =
    victim === 'the old application' || (victim === 'the new application' && (kind === 'start-first' || n > BOTH_LIVE))
  if (!serves) return whole(seen)
  // the engine starts an old one again that ends by itself, and the stop that was held may come before that hears a signal: then it
  // is killed with what it has accepted since
  const stopped = victim === 'the old application' && n === BOTH_LIVE ? 1 : 0
  const deaths = stopped + (signal === 'SIGKILL' ? 1 : 0)
  // of 8 clients 4 keep a connection
  ok(seen.lost <= 8 * deaths && seen.closed <= 4 * deaths, JSON.stringify(seen.errors))
}

async function tagOf(name: string): Promise<string> {
  return (await engine.inspect(name)).Config.Labels['org.opencontainers.image.version']
}

/** Names of gates and turns that are left in the volume. */
async function gates({ door }: HeldService): Promise<string[]> {
  const { Mounts } = await engine.inspect(door)
  return (await readdir(Mounts[0].Source)).filter((name) => /^(gate|turn)-/.test(name))
}
