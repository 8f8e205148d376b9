// A fleet hears of a release with no way back: the command of a host, through the script that is sent to it and the collection's
// own Python, without Ansible.

import { irreversibleFault, type Rehearsal } from '../agent/words/rehearsal.ts'
import { reportOf } from '../agent/words/report.ts'
import { newOperation } from '../agent/update/operation.ts'
import { equal, is, match } from './assert.ts'
import { noPython } from './lab/python.ts'
import { heard, makeStubFleet } from './lab/stub-fleet.ts'
import { suite } from './suite.ts'

const test = suite('fleet: irreversible', { skip: noPython })

const UPGRADE = 'upgrade v1.1.0 --json'
const TRIED: Rehearsal = {
  verdict: 'irreversible',
  reason: 'v1.0.0 does not start with the data that v1.1.0 leaves behind: no such column: body',
  rows: 1042,
  copyMs: 31,
  migrationMs: 512,
  tookMs: 1870,
}

test('no way back is a failed host: it says why, ends with 7, and runs what it ran', async () => {
  await using fleet = await makeStubFleet(1)
  await fleet.set('h1', 'ends', 'irreversible')
  const row = await heard(fleet, 'h1', UPGRADE, 'moved(calls, "v1.1.0")')
  equal([row['outcome'], row['exit'], row['from'], row['to']], ['failed', 7, 'v1.0.0', 'v1.1.0'])
  match(String(row['why']), /^v1\.1\.0 would change the data irreversibly: v1\.0\.0 exited with code 1; nothing has/)
  const seen = await heard(fleet, 'h1', 'status --json', 'looked(calls, "managed")')
  equal([seen['running'], seen['refused'], seen['inFlight']], ['v1.0.0', null, null])
  equal(seen['lastOperation'], {
    id: row['operationId'],
    from: 'v1.0.0',
    to: 'v1.1.0',
    outcome: 'failed',
    error: { message: 'no way back' },
  })
})

test('the report of an operation with its rehearsal fits the schema, after a move and in a look', async () => {
  const { code, message, hint } = irreversibleFault('v1.1.0', TRIED)
  const begun = newOperation({
    id: 'o',
    kind: 'update',
    from: 'v1.0.0',
    to: 'v1.1.0',
    startedAt: '2026-11-21T09:00:00Z',
  })
  const error = { code, message, hint: hint ?? '' }
  const operation = reportOf({
    ...begun,
    outcome: 'failed',
    error,
    finishedAt: '2026-11-21T09:00:09Z',
    trial: TRIED,
  })
  const end = { outcome: 'failed', from: 'v1.0.0', to: 'v1.1.0', operationId: 'o', operation, exit: 7 }
  await using fleet = await makeStubFleet(1)
  const says = (line: object) => `cat <<'END'\n${JSON.stringify(line)}\nEND\n`
  await fleet.set('h1', 'says-move', `${says({ event: 'error', code, message, hint, ...end })}exit 7\n`)
  const row = await heard(fleet, 'h1', UPGRADE, 'moved(calls, "v1.1.0")')
  equal([row['outcome'], row['exit'], row['operationId']], ['failed', 7, 'o'])
  is(String(row['why']), `${message} (hint: ${hint ?? ''})`.slice(0, 300))

  const instance = { id: 'i', pid: 7, startedAt: '2026-11-21T08:00:00Z' }
  const status = { event: 'result', running: 'v1.0.0', installed: 'v1.0.0', instance, operation, exit: 0 }
  await fleet.set('h1', 'says-status', says(status))
  const seen = await heard(fleet, 'h1', 'status --json', 'looked(calls, "managed")')
  equal([seen['running'], seen['refused']], ['v1.0.0', null])
  is((seen['lastOperation'] as { outcome: string }).outcome, 'failed')
})

test('a look tells how a rehearsal there has ended, if the host knows; any other text is no verdict', async () => {
  await using fleet = await makeStubFleet(1)
  const would = { event: 'result', outcome: 'planned', would: 'updated', from: 'v1.0.0', to: 'v1.1.0', exit: 0 }
  const dry = 'upgrade v1.1.0 --dry-run --json'
  const says = (line: object) => `cat <<'END'\n${JSON.stringify(line)}\nEND\n`
  await fleet.set('h1', 'says-plan', says({ ...would, trial: { ...TRIED, verdict: 'reversible' } }))
  equal((await heard(fleet, 'h1', dry, 'looked(calls, "managed")'))['trial'], {
    verdict: 'reversible',
    reason: TRIED.reason,
  })
  await fleet.set('h1', 'says-plan', says(would))
  is((await heard(fleet, 'h1', dry, 'looked(calls, "managed")'))['trial'], null)
})

test.run()
