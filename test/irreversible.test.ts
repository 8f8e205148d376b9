// A release with no way back, from the command line: what is sent, what is said, how it ends. The service is only its answers.

import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Receipt } from '../agent/disk/receipt.ts'
import { formatRehearsal, irreversibleFault, type Rehearsal, triedBefore } from '../agent/words/rehearsal.ts'
import { type Operation, type Status } from '../agent/words/state.ts'
import { type OperationReport } from '../agent/words/report.ts'
import { newOperation } from '../agent/update/operation.ts'
import { runCommand } from '../deploy/host/tree.ts'
import { equal, is, match, not } from './assert.ts'
import { quietly } from './fixtures/quietly.ts'
import { suite } from './suite.ts'

const test = suite('irreversible', { timeoutMs: 30_000 })

const TRIED: Rehearsal = {
  verdict: 'reversible',
  reason: 'v1.0.0 answered 2 of 2 requests as it should',
  rows: 1_200_000,
  copyMs: 310,
  migrationMs: 900,
  tookMs: 4200,
}
const NO_WAY: Rehearsal = {
  ...TRIED,
  verdict: 'irreversible',
  reason: 'v1.0.0 exited with code 1: no such column: body',
}
const FAULT = irreversibleFault('v1.1.0', NO_WAY)

test('without `--allow-irreversible` the word is not sent, so that an older service is not asked what it does not know', async () => {
  await using service = await serve(TRIED)
  await told(service, ['upgrade'])
  await told(service, ['upgrade', 'v1.1.0'])
  await told(service, ['upgrade', 'v1.1.0', '--allow-irreversible'])
  await told(service, ['upgrade', '--allow-irreversible'])
  equal(service.sent, [{}, { tag: 'v1.1.0' }, { tag: 'v1.1.0', allowIrreversible: true }, { allowIrreversible: true }])
})

test('the result of an upgrade says how the rehearsal went and what to do about it; so does a status', async () => {
  const hint = 'run `install.sh` once: it writes the systemd units that a trial needs'
  const untried: Rehearsal = {
    ...TRIED,
    verdict: 'untried',
    reason: 'the systemd units are from an older install',
    hint,
  }
  for (const rehearsal of [TRIED, untried]) {
    await using service = await serve(rehearsal)
    const text = await told(service, ['upgrade'])
    match(text, `v1.1.0 is in place, replacing v1.0.0\n${formatRehearsal(rehearsal)}\n`)
    is(text.includes(`\nhint: ${hint}\n`), rehearsal === untried)
    match(await told(service, ['status'], null), `\ntrial      ${formatRehearsal(rehearsal)}\n`)
    const [last] = (await told(service, ['upgrade', '--json'])).trim().split('\n').slice(-1)
    const { operation } = JSON.parse(last ?? '') as { operation: OperationReport }
    equal(operation.trial, rehearsal)
  }
})

test('what an earlier rehearsal has shown counts for a day, and is told with its time', () => {
  const [at, asked] = ['2026-11-30T07:38:44.000Z', { sha256: 'a'.repeat(64), from: 'v1.0.0', schema: 3 }]
  const entry = { ...asked, to: 'v1.1.0', trial: TRIED }
  const after = (ms: number) => triedBefore([{ ...entry, at }], asked, Date.parse(at) + ms)
  equal(after(3_600_000), { ...TRIED, triedAt: at })
  is(after(86_400_000), null)
  is(triedBefore([{ ...entry, at }], { ...asked, schema: 4 }, Date.parse(at)), null)
  is(triedBefore([entry], asked, Date.parse(at)), null, 'an entry of an older kit has no time')
  is(formatRehearsal(TRIED), 'tried on a copy of your data (1.2 million rows) in 4.2 s: can be rolled back')
  match(
    formatRehearsal({ ...TRIED, triedAt: at }),
    `tried earlier on a copy of your data (1.2 million rows), at ${at}, in 4.2 s: `,
  )
})

test('a service without a database says nothing of a rehearsal', async () => {
  await using service = await serve(null)
  not.match(await told(service, ['upgrade']), /copy of your data/)
  not.match(await told(service, ['status'], null), /trial/)
})

test('no way back and nobody allows it: 7, why, and who can; refused at once or found out by the operation', async () => {
  for (const how of ['refuses', 'finds out'] as const) {
    await using service = await serve(NO_WAY, how)
    const text = await told(service, ['upgrade'], 7)
    const said = `error: v1.1.0 would change the data irreversibly: ${NO_WAY.reason}; nothing has changed\n`
    match(text, said)
    match(text, `hint: ${FAULT.hint}\n`)
    const [line = ''] = (await told(service, ['upgrade', '--json'], 7)).split('\n').filter((one) => /"error"/.test(one))
    const { code, exit, outcome } = JSON.parse(line) as Record<string, unknown>
    equal([code, exit, outcome], ['irreversible', 7, how === 'refuses' ? null : 'failed'])
    match(await told(service, ['upgrade', '--allow-irreversible']), `: cannot be rolled back: ${NO_WAY.reason}\n`)
  }
})

test('`--trial` is a word of a dry run: an upgrade rehearses by itself', async () => {
  await using service = await serve(TRIED)
  match(await told(service, ['upgrade', '--trial'], 2), '`--trial` works only with `--dry-run`')
  match(await told(service, ['upgrade', '--help']), /--trial .*copy of the data/)
  match(await told(service, ['rollback', '--dry-run', '--trial'], 2), 'unknown flag `--trial`')
  equal(service.sent, [])
})

test('only an upgrade takes the word, and its usage says what it means', async () => {
  await using service = await serve(TRIED)
  match(await told(service, ['upgrade', '--help']), /--allow-irreversible .*an update that cannot be rolled back/)
  for (const word of ['rollback', 'install', 'status']) {
    match(await told(service, [word, '--allow-irreversible'], 2), 'unknown flag `--allow-irreversible`')
  }
  equal(service.sent, [])
})

interface Served extends AsyncDisposable {
  folder: string
  /** the bodies of the requests for an update */
  sent: unknown[]
  /** v1.0.0 runs again, so that the next command finds something to do */
  back(): void
}

/** A service that updates to v1.1.0 at once; `how`: what it does if that has no way back and nobody allows it. */
async function serve(rehearsal: Rehearsal | null, how: 'refuses' | 'finds out' = 'refuses'): Promise<Served> {
  const folder = await mkdtemp(join(tmpdir(), 'baton-irreversible-'))
  const sent: unknown[] = []
  let version = 'v1.0.0'
  let operation: Operation | null = null
  const status = (): Status => ({
    state: 'idle',
    operation,
    instance: { id: version, pid: 42, version, startedAt: '2026-11-21T08:00:00Z' },
    backup: null,
    probation: null,
    trust: { signed: false, metadata: [], yanked: [], warning: null },
    history: [],
  })
  const update = (body: { allowIrreversible?: boolean }): [number, unknown] => {
    sent.push(body)
    const refused = rehearsal?.verdict === 'irreversible' && body.allowIrreversible !== true
    const { code, message, hint } = FAULT
    if (refused && how === 'refuses')
      return [409, { type: 'docs/reference/errors.md#irreversible', code, detail: message, hint }]
    const known = { id: String(sent.length), kind: 'update', from: 'v1.0.0', to: 'v1.1.0' } as const
    const begun = newOperation({ ...known, startedAt: '2026-11-21T09:00:00Z' })
    const tried = rehearsal === null ? {} : { trial: rehearsal }
    const error = refused ? { code, message, hint: hint ?? '' } : null
    const [outcome, finishedAt] = [refused ? 'failed' : 'updated', '2026-11-21T09:00:09Z'] as const
    operation = { ...begun, ...tried, outcome, error, finishedAt }
    if (!refused) version = 'v1.1.0'
    return [202, begun]
  }
  const server = createServer((request, response) => {
    let text = ''
    request.setEncoding('utf8').on('data', (part: string) => (text += part))
    request.on('end', () => {
      const body = JSON.parse(text || '{}') as { allowIrreversible?: boolean }
      const [code, answer] = request.method === 'POST' ? update(body) : [200, status()]
      response.writeHead(code, { 'content-type': 'application/json' }).end(JSON.stringify(answer))
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  await install(folder, (server.address() as AddressInfo).port)
  return {
    folder,
    sent,
    back: () => void (version = 'v1.0.0'),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
      await rm(folder, { recursive: true, force: true })
    },
  }
}

async function install(folder: string, port: number): Promise<void> {
  const [stateDirectory, configPath] = [join(folder, 'state'), join(folder, 'config.json')]
  const receipt: Receipt = {
    format: 1,
    service: 'beacon',
    executable: join(folder, 'beacon'),
    scope: 'user',
    supervisor: 'none',
    user: 'test',
    stateDirectory,
    configPath,
    feed: folder,
    installedAt: '2026-11-21T08:00:00Z',
    options: {},
  }
  await mkdir(stateDirectory, { mode: 0o700 })
  await writeFile(configPath, JSON.stringify({ listen: { host: '127.0.0.1', port } }))
  await writeFile(join(folder, 'receipt.json'), JSON.stringify(receipt))
}

/** Everything that the command prints. `code` null: it does not matter. */
async function told({ folder, back }: Served, argv: string[], code: number | null = 0): Promise<string> {
  if (argv[0] === 'upgrade') back()
  const where = ['--user', '--prefix', folder]
  const ended = await quietly(() => runCommand([...argv, ...where], { service: 'beacon', tag: 'v1.0.0' }))
  if (code !== null) is(ended.code, code, ended.text)
  return ended.text
}

test.run()
