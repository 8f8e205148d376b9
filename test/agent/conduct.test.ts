// The one switch, on a ground that only writes down what it is asked: each step taken, failed, left and never ended, in both orders.

import { conduct, type Ground } from '../../agent/handover/conduct.ts'
import { type Order, ORDERS } from '../../agent/words/order.ts'
import { equal, is, ok } from '../assert.ts'
import { suite } from '../suite.ts'

const test = suite('conduct')

type Step = 'start' | 'retire' | 'begin' | 'claim' | 'hand' | 'prove' | 'commit'
const STEPS: Record<Order, readonly Step[]> = {
  'start-first': ['start', 'begin', 'claim', 'prove', 'hand', 'prove', 'commit', 'retire'],
  'stop-first': ['start', 'retire', 'begin', 'claim', 'hand', 'prove', 'commit'],
}
/** what is waited for no longer once whoever conducts it must end */
const IS_LEFT: readonly Step[] = ['start', 'retire', 'begin', 'prove']
type Act =
  | 'takes'
  | 'fails'
  | 'never ends'
  | 'is told to end, and fails'
  | 'is told to end, and takes'
  | 'is told to end, and never ends'
const ACTS: readonly Act[] = [
  'fails',
  'is told to end, and fails',
  'is told to end, and takes',
  'is told to end, and never ends',
]

test('a good switch takes each step once, in its order', async () => {
  for (const order of ORDERS) {
    const { ended, took } = await scripted(order, -1, 'takes')
    is(ended, 'committed')
    equal(took, STEPS[order])
  }
})

test('whichever step fails or is left: what was begun is put back or left, once, and nothing follows', async () => {
  let cases = 0
  for (const order of ORDERS)
    for (const [at, step] of STEPS[order].entries())
      for (const act of ACTS) {
        const isTold = act !== 'fails'
        // the last act of start-first is its own: the ground says how it ends, and `commit` is never left half-way
        const isRaced = IS_LEFT.includes(step) && !(order === 'start-first' && step === 'retire')
        if (act.endsWith('never ends') && !isRaced) continue
        const { ended, took, hasServed } = await scripted(order, at, act)
        const name = `${order}, ${step} (${at}) ${act}: ${took.join(' ')}`
        cases++
        equal(took.slice(0, at + 1), STEPS[order].slice(0, at + 1), name)
        const rest = took.slice(at + 1)
        const served = STEPS[order].slice(0, at).includes('begin')
        if (isTold && isRaced) {
          equal(rest, ['leave'], name)
        } else if (act.endsWith('fails')) {
          equal(rest, ['putBack'], name)
        } else {
          // a step that is not left has been taken: the next one that is, is not begun
          const next = STEPS[order].slice(at + 1)
          const left = next.findIndex(
            (one, n) => IS_LEFT.includes(one) && !(order === 'start-first' && n === next.length - 1),
          )
          equal(rest, left < 0 ? next : [...next.slice(0, left), 'leave'], name)
        }
        if (rest.at(-1) === 'leave' || rest.at(-1) === 'putBack') {
          is(ended, rest.at(-1), name)
          is(hasServed, served, name)
        } else is(ended, 'committed', name)
      }
  ok(cases > 40, String(cases))
})

test('a step that ends after it was left changes nothing, and a failure of it is nobody’s', async () => {
  for (const order of ORDERS)
    for (const late of ['takes', 'fails'] as const) {
      const end = Promise.withResolvers<void>()
      const told = new AbortController()
      const { ground, took } = scriptedGround(order, told.signal, (step) =>
        step === 'begin' ? end.promise : Promise.resolve(),
      )
      const ended = conduct(ground)
      await turns()
      told.abort()
      is(await ended, 'leave')
      const before = [...took]
      if (late === 'takes') end.resolve()
      else end.reject(new Error('late'))
      await turns()
      equal(took, before)
      equal(took, [...(order === 'stop-first' ? ['start', 'retire'] : ['start']), 'begin', 'leave'])
    }
})

test('what putting back or leaving throws is how the switch ends', async () => {
  const { ground } = scriptedGround('start-first', new AbortController().signal, async (step) => {
    if (step === 'prove') throw new Error('it is ill')
  })
  ground.putBack = (cause) => Promise.reject(new Error(`put back, for ${(cause as Error).message}`))
  const ended = await conduct(ground).catch((cause: Error) => cause.message)
  is(ended, 'put back, for it is ill')
})

/** Conducts a switch of which all steps are taken but the one at `at`. */
async function scripted(order: Order, at: number, act: Act) {
  const told = new AbortController()
  const { ground, took, ...seen } = scriptedGround(order, told.signal, async () => {
    if (took.length !== at + 1) return
    if (act.startsWith('is told')) told.abort()
    if (act.endsWith('never ends')) await new Promise(() => {})
    if (act.endsWith('fails')) throw new Error('it failed')
  })
  const ended = await conduct(ground)
  return { ended, took, hasServed: seen.hasServed() }
}

function scriptedGround(order: Order, leaving: AbortSignal, act: (step: Step) => Promise<void>) {
  const took: string[] = []
  let served: boolean | null = null
  const step = (name: Step) => async (): Promise<void> => {
    took.push(name)
    await act(name)
  }
  const ends = (name: string, hasServed: boolean): Promise<string> => {
    took.push(name)
    served = hasServed
    return Promise.resolve(name)
  }
  const ground: Ground<string> = {
    leaving: { signal: leaving, leave: (hasServed) => ends('leave', hasServed) },
    async start() {
      await step('start')()
      return order
    },
    retire: step('retire'),
    begin: step('begin'),
    claim: step('claim'),
    hand: step('hand'),
    prove: step('prove'),
    async commit() {
      await step('commit')()
      return 'committed'
    },
    putBack: (_cause, hasServed) => ends('putBack', hasServed),
  }
  return { ground, took, hasServed: () => served }
}

async function turns(): Promise<void> {
  for (let n = 0; n < 5; n++) await new Promise(setImmediate)
}

test.run()
