// The ground of two containers, on an engine that is only written down: a switch ends by the order in which it began, whatever the engine
// shows when it has been away meanwhile.

import { mkdir, readdir } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Engine } from '../../deploy/container/engine/engine.ts'
import { GATES } from '../../deploy/container/gate.ts'
import { forward } from '../../deploy/container/ground.ts'
import type { Job } from '../../deploy/container/job.ts'
import { HOLDER_LABEL } from '../../deploy/container/reference.ts'
import { run } from '../../deploy/lib/shell.ts'
import { equal, is, ok, rejects } from '../assert.ts'
import { labReason } from '../lab/docker.ts'
import { suite } from '../suite.ts'

// in the lab only: there the folder of the gates is nobody else's
const test = suite('container ground', { timeoutMs: 60_000, skip: labReason() })
const [OLD, NEW, DOOR] = ['o'.repeat(64), 'n'.repeat(64), 'd'.repeat(64)]
const LIMITS = { healthTimeoutMs: 2000, probationMs: 300 }

test.before(async () => {
  await run(['mount', '-t', 'tmpfs', 'baton-test', '/run'])
  await mkdir(GATES)
})

test('start-first: the whole probation is waited for once, with the old one beside it', async () => {
  const { steps, took, said } = switching()
  is(await steps.start(), 'start-first')
  await steps.begin()
  await steps.claim()
  const began = performance.now()
  await steps.prove()
  const firstMs = performance.now() - began
  ok(firstMs >= LIMITS.probationMs, `${firstMs} ms`)
  const asked = took.length
  await steps.prove()
  equal(took.slice(asked), [], 'it is not asked anew')
  equal(said, ['switch', 'health', 'probation'])
  ok(!took.includes(`stop ${OLD}`))
  await steps.endOld()
  ok(took.includes(`stop ${OLD}`))
  equal(await readdir(GATES), [])
})

test('start-first: the old one ends while the engine is away: a new one that does not answer through its holder is refused all the same', async () => {
  const one = switching()
  is(await one.steps.start(), 'start-first')
  await one.steps.begin()
  await one.steps.claim()
  const proving = one.steps.prove()
  await sleep(LIMITS.probationMs / 3)
  one.away({ old: false }) // from now on the engine shows that one of them must be started after the other
  await proving
  one.silence()
  await rejects(one.steps.endOld(), /cannot be reached through its holder/)
  equal(await readdir(GATES), [])
})

test('stop-first: an old one that the engine starts again when it is back does not serve beside the new one', async () => {
  const one = switching({ old: false })
  is(await one.steps.start(), 'stop-first')
  await one.steps.retire()
  await one.steps.begin()
  await one.steps.claim()
  const proving = one.steps.prove()
  await sleep(LIMITS.probationMs / 3)
  one.away({ old: true })
  await rejects(proving, /was not ready to take over after 2s/) // there is no application here
  ok(one.took.includes(`stop ${NEW}`), 'the new one begins only after the end of the old one')
  equal(await readdir(GATES), [])
})

test.run()

/** Two containers behind a holder, of images that may serve at once. `old`: whether the old one runs. */
function switching({ old: isThere = true } = {}) {
  const took: string[] = []
  const said: string[] = []
  const runs: Record<string, boolean> = { [OLD]: isThere, [NEW]: false, [DOOR]: true }
  const names: Record<string, string> = { [OLD]: 'app', [NEW]: 'app-baton-successor', [DOOR]: 'door' }
  let [epoch, answers] = [0, true]
  const container = async (id: string) => {
    if (runs[id] === undefined) return null
    return {
      Id: id,
      Name: `/${names[id]}`,
      Image: `image-${id}`,
      RestartCount: 0,
      State: { Status: runs[id] ? 'running' : 'exited', Running: runs[id], ExitCode: 0, StartedAt: '' },
      Config: { Image: '', Env: id === DOOR ? [] : ['BATON_HOLDER=/run/hold/socket'], Entrypoint: ['app'] },
      HostConfig: { NetworkMode: 'bridge', RestartPolicy: { Name: 'always' } },
      Mounts: [{ Destination: '/run/hold', Source: '/volume', RW: id === DOOR }],
      NetworkSettings: { Networks: {} },
    }
  }
  const act =
    (word: string, then: (id: string) => void = () => {}) =>
    async (id: string) => {
      took.push(`${word} ${id}`)
      then(id)
    }
  const engine = {
    kind: 'docker',
    liveRestore: false,
    epoch: () => epoch,
    awake: async () => {},
    container: async (id: string) => {
      took.push(`look ${id}`)
      return await container(id)
    },
    containers: async (label: string) => (label === HOLDER_LABEL ? [DOOR] : [OLD, NEW, DOOR]),
    image: async (id: string) => ({
      Id: id,
      Config: { Entrypoint: ['app'], Labels: { 'baton.order': 'start-first' } },
    }),
    rename: async (id: string, name: string) => void (names[id] = name),
    start: act('start', (id) => (runs[id] = true)),
    stop: act('stop', (id) => (runs[id] = false)),
    setRestartPolicy: act('policy'),
  } as unknown as Engine
  const origin = { name: 'app', version: null, from: null, restart: { Name: 'always' } }
  const job = { origin, predecessor: OLD, successor: NEW, image: `image-${NEW}` } as unknown as Job
  const steps = forward({
    job,
    limits: LIMITS,
    tools: {
      engine,
      stop: new AbortController().signal,
      report: (event) => void (event.event === 'step' && said.push(event.step)),
    },
    outage: {
      answers: async () => answers,
      follow: async () => {},
      hasAnswered: () => answers,
      isHeld: () => true,
      end: async () => ({ downMs: null, downMeasured: null, illMs: null, refused: null }),
    },
  })
  return {
    steps,
    took,
    said,
    /** The engine was away in between, and is back. */
    away: ({ old }: { old: boolean }) => {
      epoch++
      runs[OLD] = old
    },
    silence: () => void (answers = false),
  }
}
