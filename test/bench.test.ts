// The bench's words: goals, tables and charts from results that are made up. What it measures is measured by `npm run bench`.

import { drawChart } from './bench/chart.ts'
import type { Change } from './bench/delta.ts'
import type { LoadResult, PeerResult } from './bench/handover.ts'
import type { Machine } from './bench/machine.ts'
import { peers } from './bench/peers.ts'
import { goalsOf } from './bench/goals.ts'
import { markdown } from './bench/markdown.ts'
import { pairsOf } from './bench/pairs.ts'
import { charts } from './bench/report.ts'
import { longerOf, type Results } from './bench/results.ts'
import { table } from './bench/table.ts'
import type { UpdateResult } from './bench/update.ts'
import { waitsOf } from './bench/waits.ts'
import { resultOf } from './bench/start.ts'
import { rowsOf as stepRowsOf } from './bench/steps.ts'
import { median, medianRatio, quantile } from './bench/statistics.ts'
import * as assert from './assert.ts'
import { suite } from './suite.ts'

const test = suite('bench')

const machine: Machine = {
  processor: 'one',
  processors: 2,
  memoryGiB: 8,
  system: 'a system',
  kernel: 'linux 6',
  node: 'v26.0.0',
  date: '2026-01-02',
}
const about = { machine, command: 'npm run bench' }
const transfer = { ms: 1000, peakKb: 100_000 }
const update: UpdateResult = {
  servedBy: 'one',
  rounds: 1,
  assetBytes: 1,
  baton: transfer,
  curl: null,
  ratio: null,
  ratioFlushed: null,
  small: { assetBytes: 1, peakKb: 100_000 },
  whole: { assetBytes: 1, executableBytes: 1, stagesMs: {}, answersMs: 1, committedMs: 1 },
}

test('holds the handover against its goals', () => {
  const good = goalsOf(resultsOf(peer('baton', {}), peer('nginx', { closed: 384, lost: 33 })))
  assert.equal(
    good.map(({ met }) => met),
    [true, true, true, true],
  )
  for (const [wrong, which] of [
    [{ lost: 1 }, 0],
    [{ closed: 1 }, 0],
    [{ switchOverBareStart: 2.1 }, 1],
    [{ longestWaitMs: 21 }, 2],
    [{ p999Ms: 8 }, 3],
  ] as const) {
    const goals = goalsOf(resultsOf(peer('baton', wrong), peer('nginx', {})))
    assert.equal(
      goals.map(({ met }) => met),
      [0, 1, 2, 3].map((i) => i !== which),
      JSON.stringify(wrong),
    )
  }
})

test('holds deltas against their goals, on the slowest line too', () => {
  const told = (megabits: number | null, ms: number, peakKb = 120_000) => ({
    megabits,
    full: { ms: 1000, peakKb },
    delta: { ms, peakKb },
  })
  const change = {
    title: 'Node' as const,
    deltaBytes: 14,
    makeMs: 9000,
    patches: [],
    lines: [told(null, 400), told(10, 1040)],
  }
  const met = (one: Change) => {
    const section = { ...about, result: { ...update, delta: { assetBytes: 100, changes: [one] } } }
    return goalsOf({ update: section }).map(({ met: isMet }) => isMet)
  }
  assert.equal(met(change).slice(-3), [true, true, true])
  assert.equal(met({ ...change, deltaBytes: 16 }).slice(-3), [false, true, true])
  assert.equal(met({ ...change, lines: [told(null, 501), told(10, 1060)] }).slice(-3), [true, false, false])
  assert.equal(met({ ...change, lines: [told(null, 400, 200_000)] }).slice(-2, -1), [false])
  const text = table({ update: { ...about, result: { ...update, delta: { assetBytes: 100, changes: [change] } } } }, [])
  assert.match(text, /a change of Node +by a delta +by the asset/)
  assert.match(text, /10 Mbit\/s, 50 ms +1\.04 s, 117 MiB +1\.00 s, 117 MiB/)
})

test("holds a container's pause against the start of the application in it", () => {
  const met = (pauseMs: number) =>
    goalsOf({ container: { ...about, result: { markdown: '', pauseMs, startMs: 150 } } }).map((goal) => goal.met)
  assert.equal([met(250), met(251)], [[true], [false]])
})

test('says nothing about what was not measured', () => {
  assert.equal(goalsOf({}), [])
  assert.equal(charts({}), {})
  assert.is(goalsOf(resultsOf(peer('nginx', {}))).length, 0)
})

test('names a missing peer with the command that brings it', () => {
  const results = resultsOf(peer('baton', {}))
  results.handover?.result.missing.push({ title: 'nginx binary upgrade', command: 'apt-get install nginx-light' })
  assert.match(table(results, []), /missing: nginx binary upgrade: apt-get install nginx-light/)
  assert.match(markdown(results, []), /missing: nginx binary upgrade: `apt-get install nginx-light`/)
  const missing = { missing: 'apt-get install it' }
  const entries = peers({
    app: '',
    nginx: missing,
    haproxy: missing,
    caddy: missing,
    pm2: missing,
    systemd: missing,
    wrk: missing,
    curl: missing,
    zstd: missing,
    bsdiff: missing,
    bspatch: missing,
    formerNode: missing,
  })
  assert.equal(
    entries.filter((entry) => 'missing' in entry).map(({ id }) => id),
    ['pm2', 'nginx', 'haproxy', 'caddy', 'socket'],
  )
})

test('draws whole charts, light and dark, in which text is text', () => {
  const [chart] = Object.values(charts(resultsOf(peer('baton', {}), peer('nginx', { lost: 33 }))))
  assert.ok(chart !== undefined)
  for (const theme of ['light', 'dark'] as const) {
    const svg = drawChart({ ...chart, title: 'a < b & "c"' }, theme)
    assert.match(svg, /^<svg [^>]*aria-label="a &lt; b &amp; &quot;c&quot;">/)
    assert.is((svg.match(/<text/g) ?? []).length, (svg.match(/<\/text>/g) ?? []).length)
    assert.not.match(svg, /NaN|undefined|Infinity/)
  }
})

test('the waits of a switch are those of its own second, the worst of all of them', () => {
  const slice = { requests: 10, lost: 0, closed: 0, p50Ms: 1, p999Ms: 5 }
  const slices = [
    { ...slice, name: 'switch', longestMs: 10 },
    { ...slice, name: 'steady', longestMs: 2, lost: 1 },
    { ...slice, name: 'switch', longestMs: 30 },
  ]
  const waits = waitsOf(500, 2, slices)
  assert.equal(waits.switchLongestMs, { median: 20, worst: 30 })
  assert.equal(waits.steadyLongestMs, { median: 2, worst: 2 })
  assert.equal([waits.lost, waits.requests], [1, 30])
})

test('compares stop-first with each other round by round, and counts what each has lost', () => {
  const turn = (longestMs: number, lost = 0) => ({
    switchMs: 100,
    steadyLongestMs: 2,
    switch: { longestMs, lost, closed: 1, requests: 500 },
  })
  const peers = pairsOf([
    { id: 'baton-one', title: 'one', turns: [turn(100), turn(300), turn(90)] },
    { id: 'socket', title: 'socket', turns: [turn(200, 4), turn(150), turn(90)] },
  ])
  assert.equal(
    peers.map(({ ratio, lost, closed, requests, longestMs }) => [ratio, lost, closed, requests, longestMs.median]),
    [
      [1, 0, 3, 1500, 100],
      [1, 4, 3, 1500, 150],
    ],
  )
  const results = resultsOf(peer('baton', {}))
  if (results.handover !== undefined) results.handover.result.pairs = { rate: 500, rounds: 3, peers }
  const goal = goalsOf(results).at(-1)
  assert.equal([goal?.got, goal?.met], ['1 times, lost 0, closed 3', false])
  assert.match(table(results, []), /in turns: 3 switches each, an open loop of 500 requests\/s/)
  assert.match(markdown(results, []), /### Stop-first[\s\S]*\| socket \| 1500 \| 4 \|/)
})

test('each step of a switch has the moment and the longest turn of its own process', () => {
  const seen = (pid: number, step: string, at: number, longestMs: number) => ({ pid, step, at, usedMs: 1, longestMs })
  const rows = stepRowsOf([
    [seen(7, 'steady', 0, 99), seen(7, 'ordered', 1000, 2), seen(7, 'spawned', 1010, 3), seen(8, 'born', 1100, 9)],
    [seen(8, 'ordered', 5000, 4), seen(9, 'born', 5200, 11), seen(8, 'spawned', 5020, 5)],
  ])
  assert.equal(
    rows.map(({ side, step, atMs, longestMs, worstMs }) => [side, step, atMs, longestMs, worstMs]),
    [
      ['old', 'ordered', 0, 3, 4],
      ['old', 'spawned', 15, 4, 5],
      ['new', 'born', 150, 10, 11],
    ],
  )
})

test('in the docs a short run never takes the place of a long one, and leaves the other parts as they were', () => {
  const short = resultsOf(peer('baton', {})).handover
  if (short === undefined) throw new Error('no result')
  const long = { ...short, command: 'npm run bench -- handover --long', result: { ...short.result, switches: 20 } }
  const trust = { ...short, result: { markdown: '' } } as unknown as NonNullable<Results['trust']>
  assert.equal(longerOf({ handover: long, trust }, { handover: short }), {
    all: { handover: long, trust },
    kept: ['handover'],
  })
  const fewer = { ...long, result: { ...long.result, switches: 8 } }
  assert.equal(longerOf({ handover: long }, { handover: fewer }).kept, ['handover'])
  const later = { ...long, machine: { ...long.machine, date: '2026-02-01' } }
  assert.equal(longerOf({ handover: long, trust }, { handover: later }), {
    all: { handover: later, trust },
    kept: [],
  })
  assert.equal(longerOf({}, { trust }), { all: { trust }, kept: [] })
})

test('a start costs what it takes beyond plain `node:http` of its own pair, and is compared pair by pair', () => {
  const { pairs, rows, ratio } = resultOf(
    [
      [40, 60, 50],
      [60, 90, 71],
      [80, 110, 92],
    ],
    'e0e44f3',
  )
  assert.is(pairs, 3)
  assert.equal(
    rows.map(({ extraMs }) => extraMs),
    [0, 21, 42],
  )
  assert.is(ratio, 0.5)
  assert.is(resultOf([[40], [60]], '').ratio, null)
})

test('takes medians, of pairs too', () => {
  assert.is(median([3, 1, 2]), 2)
  assert.is(median([1, 2, 3, 4]), 2.5)
  assert.is(quantile([0, 10], 0.9), 9)
  assert.is(
    medianRatio([
      [1, 2],
      [30, 30],
      [8, 2],
    ]),
    1,
  )
})

test.run()

type Figures = Partial<
  Pick<LoadResult, 'lost' | 'closed'> &
    Pick<PeerResult, 'switchOverBareStart'> & { longestWaitMs: number; p999Ms: number }
>

function peer(
  id: string,
  { lost = 0, closed = 0, longestWaitMs = 20, p999Ms = 6, switchOverBareStart = 1.1 }: Figures,
): PeerResult {
  const load: LoadResult = {
    requests: 1000,
    lost,
    closed,
    longestStallMs: 20,
    steadyStallMs: 10,
    p999SwitchMs: 9,
    p999SteadyMs: 6,
    p999Ratio: 1.5,
    errors: {},
  }
  return {
    id,
    title: id,
    version: '1',
    native: false,
    configuration: 'as it comes',
    switches: 6,
    bareStartMs: 100,
    quietSwitchMs: 110,
    switchOverBareStart,
    restartMs: null,
    loadedSwitchMs: 150,
    kernel: null,
    waits: [500, 2000, 6000].map((rate) => ({
      rate,
      switches: 6,
      requests: 1000,
      lost: 0,
      closed: 0,
      switchLongestMs: { median: longestWaitMs, worst: longestWaitMs },
      steadyLongestMs: { median: 10, worst: 12 },
      switchP999Ms: p999Ms,
      steadyP999Ms: 6,
    })),
    loads: { fresh: load, keepalive: load, stream: load, websocket: load },
  }
}

function resultsOf(...list: PeerResult[]): Results {
  const clients = { fresh: 1, keepalive: 1, stream: 1, websocket: 1 }
  const result = { carried: true as const, peers: list, missing: [], failed: [], switches: 6, drainMs: 2000, clients }
  return { handover: { machine, command: 'npm run bench', result } }
}
