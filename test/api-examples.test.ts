// The examples in docs/reference/openapi.json are what a running service has answered. This asks one again and compares: the same members with
// the same words; times, ids, sums, sizes and counts may differ. `BATON_RECORD=1 npm test -- api-examples` writes them anew.

import { execFile } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { mkdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { UpdateSettings } from '../agent/settings.ts'
import type { Status } from '../agent/words/state.ts'
import { equal, is } from './assert.ts'
import { adopted } from './fixtures/adopted.ts'
import { until } from './fixtures/evidence.ts'
import { JOBS } from './fixtures/jobs.ts'
import { scriptRelease } from './fixtures/releases.ts'
import { conforms } from './lab/openapi.ts'
import { installService, type Service } from './panel/service.ts'
import { suite } from './suite.ts'

const FILE = join(import.meta.dirname, '../docs/reference/openapi.json')
const AUTO = { mode: 'minor', hours: '02:00-05:00', zone: 'Europe/Berlin' }

type Json = null | boolean | number | string | Json[] | { [key: string]: Json }

/** Where an example is in the document, and what was answered. */
type Recorded = [pointer: string[], value: Json]

const test = suite('api examples', { timeoutMs: 120_000 })

test('each example of the document is what a running service answers', async () => {
  const recorded = [...(await ofManaged()), ...(await ofProceed()), ...(await ofOthers())]
  const document = JSON.parse(readFileSync(FILE, 'utf8')) as Json
  const paths = recorded.map(([pointer]) => pointer.join(' '))
  is(new Set(paths).size, paths.length)
  if (process.env['BATON_RECORD'] === '1') {
    for (const [pointer, value] of recorded) put(document, pointer, value)
    writeFileSync(FILE, `${JSON.stringify(document, null, 2)}\n`)
    await promisify(execFile)('npx', ['oxfmt', FILE])
  }
  for (const [pointer, value] of recorded) equal(wordsOf(at(document, pointer)), wordsOf(value), pointer.join(' '))
  equal(examplesOf(document, []).toSorted(), paths.toSorted(), 'an example that no service has answered')
})

async function ofManaged(): Promise<Recorded[]> {
  const releases = await Promise.all(['v1.0.0', 'v1.1.0'].map((tag) => scriptRelease(tag)))
  const update = { probation: '500ms', auto: AUTO } as UpdateSettings
  await using service = await installService({ releases, update })
  const { kept, ask } = asking(service)
  await ask('POST', '/rollback', undefined, 404, 'NoBackup')
  await ask('POST', '', { tag: '1.2' }, 400, 'InvalidUpdate')
  await ask('POST', '', { tag: 'v9.9.9' }, 404, 'NoRelease')
  await ask('POST', '/cancel', undefined, 409, 'TooLate')
  await ask('POST', '/policy', { wish: 'all' }, 400, 'InvalidRequest')
  await ask('GET', '/operations/00000000-0000-4000-8000-000000000000', undefined, 404, 'NotFound')
  await ask('PUT', '/status', undefined, 405, 'MethodNotAllowed')
  await ask('POST', '', { tag: 'v'.repeat(5000) }, 413, 'BodyTooLarge')
  await ask('GET', '/status', undefined, 200, 'idle')
  await ask('POST', '/check', undefined, 200, 'available')
  await ask('GET', '/policy', undefined, 200, 'asConfigured')
  await ask('POST', '/policy', { policy: { skip: 'v1.4.0' } }, 200, 'tightened')
  service.feed.throttle(20_000)
  await ask('POST', '', { tag: 'v1.1.0' }, 202, 'started')
  await ask('POST', '', {}, 409, 'Conflict')
  await comesTo(service, ({ operation }) => (operation?.progress?.bytes ?? 0) > 0)
  await ask('GET', '/status', undefined, 200, 'downloading')
  service.feed.throttle(undefined)
  const updated = await comesTo(service, ({ state, instance }) => state === 'idle' && instance.version === 'v1.1.0')
  await ask('GET', '/status', undefined, 200, 'updated')
  await ask('GET', '/operations', undefined, 200, 'all')
  await ask('GET', `/operations/${updated.operation?.id}`, undefined, 200, 'one')
  await ask('POST', '/rollback', undefined, 202, 'started')
  await comesTo(service, ({ state, instance }) => state === 'idle' && instance.version === 'v1.0.0')
  service.feed.throttle(20_000)
  await service.ask('POST', '', { tag: 'v1.1.0' })
  await comesTo(service, ({ operation }) => operation?.stage === 'download')
  await ask('POST', '/cancel', undefined, 200, 'cancelled')
  service.feed.throttle(undefined)
  await service.feed.close()
  await ask('POST', '/check', undefined, 200, 'feedDown')
  return kept
}

/** What an update answers that waits for the application's work, once a person goes on. */
async function ofProceed(): Promise<Recorded[]> {
  await using it = await adopted(JOBS)
  const url = `http://127.0.0.1:${it.port}`
  const headers = { authorization: `Bearer ${it.password}`, connection: 'close' }
  const { kept, ask } = asking({
    url,
    feed: null,
    ask: async (method, path) => await fetch(`${url}/admin/update${path}`, { method, headers }),
  })
  await fetch(`${url}/hang`, { headers: { connection: 'close' } })
  await it.operate('/admin/update', { tag: 'v1.1.0' }, async () => {
    const look = async () => (await fetch(`${url}/admin/update/status`, { headers })).json() as Promise<Status>
    await until('a wait for work', async () => (await look()).operation?.waits?.[0]?.code === 'work', 10_000)
    await ask('POST', '/proceed', undefined, 200, 'proceeded')
  })
  return kept
}

/** What others than a managed install with a password answer, and one that something is wrong with. */
async function ofOthers(): Promise<Recorded[]> {
  const releases = [await scriptRelease('v1.0.0')]
  await using foreign = await installService({ releases, managed: 'foreign' })
  const { kept, ask } = asking(foreign)
  await ask('GET', '/status', undefined, 501, 'NotManaged')
  const wrong = async (status: number) => {
    const response = await fetch(`${foreign.url}/admin/update/status`)
    const body = (await response.json()) as Json
    return response.status === status && body
  }
  kept.push([refusal('Unauthorized'), await until('a 401', async () => await wrong(401), 5000)])
  kept.push([refusal('TooManyFailures'), await until('a 429', async () => await wrong(429), 30_000)])
  await using open = await installService({ releases, password: null })
  const refused = asking(open)
  await refused.ask('GET', '/status', undefined, 403, 'NoPassword')
  await using broken = await installService({ releases })
  const journal = join(broken.stateDirectory, 'update/journal.json')
  await rm(journal, { force: true })
  await mkdir(journal, { recursive: true }) // no mode keeps root from reading a file
  const unread = asking(broken)
  await unread.ask('GET', '/status', undefined, 500, 'Unexpected')
  return [...kept, ...refused.kept, ...unread.kept]
}

type Asked = Pick<Service, 'url' | 'ask'> & { feed: Service['feed'] | null }

function asking(service: Asked) {
  const kept: Recorded[] = []
  const ask = async (method: string, path: string, body: object | undefined, status: number, name: string) => {
    const response = await service.ask(method, path, body)
    const text = await response.text()
    is(response.status, status, `${method} ${path}: ${text}`)
    const isBroken = status === 500
    conforms({ method, path: `/admin/update${path}`, status, headers: response.headers, body: text, isBroken })
    const documented = path.replace(/(?<=^\/operations\/).+/, '{id}')
    const examples = ['paths', `/admin/update${documented}`, method.toLowerCase(), 'responses', String(status)]
    const pointer =
      status < 300 ? [...examples, 'content', 'application/json', 'examples', name, 'value'] : refusal(name)
    kept.push([pointer, JSON.parse(abroad(text, service)) as Json])
  }
  return { kept, ask }
}

const refusal = (name: string) => ['components', 'responses', name, 'content', 'application/problem+json', 'example']

/** As on a host, instead of in a folder of this test. */
function abroad(text: string, { url, feed }: Asked): string {
  const fromFeed =
    feed === null
      ? text
      : text.replaceAll(feed.url, 'https://github.example.org').replaceAll(new URL(feed.url).host, '192.0.2.7:443')
  return fromFeed
    .replaceAll(url, 'http://127.0.0.1:8080')
    .replaceAll(/\/[\w./-]*baton-panel-\w+\/state\b/g, '/var/lib/beacon')
    .replaceAll(/\/[\w./-]*baton-panel-\w+\/app\b/g, '/opt/beacon')
}

/** The first status that is so. */
async function comesTo(service: Service, isSo: (status: Status) => boolean): Promise<Status> {
  const look = async () => {
    const status = await service.status().catch(() => null)
    return status !== null && isSo(status) && status
  }
  return await until('a status', look, 30_000)
}

/** The value without what differs from one run to the next. */
function wordsOf(value: Json | undefined, name = ''): unknown {
  if (Array.isArray(value)) return value.map((one) => wordsOf(one))
  if (typeof value === 'number') return name === 'status' ? value : 'a number'
  if (typeof value === 'string') return textOf(value, name)
  if (typeof value !== 'object' || value === null) return value
  // how far the schedule is depends on when it was asked
  const isLate = (key: string) => ['next', 'askedAt', 'now'].includes(key)
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, isLate(key) ? '…' : wordsOf(one, key)]))
}

function textOf(text: string, name: string): string {
  if (name === 'id') return 'an id'
  return text
    .replaceAll(/\b[0-9a-f]{8}-[0-9a-f-]{27}\b/g, 'an id')
    .replaceAll(/\b[0-9a-f]{64}\b/g, 'a sum')
    .replaceAll(/\b(\d{4}-\d\d-\d\dT[\d:.]+Z|\d{8}T\d{6}\.\d{3}Z)/g, 'a time')
    .replaceAll(/(?<!v[\d.]*)\b\d+(?=s?\b)/g, 'a number')
}

function examplesOf(value: Json, pointer: string[]): string[] {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return []
  return Object.entries(value).flatMap(([key, one]) => {
    const here = [...pointer, key]
    const isAnswer = !pointer.includes('requestBody')
    const isExample = key === 'example' || (key === 'value' && pointer.at(-2) === 'examples')
    return isExample && isAnswer ? [here.join(' ')] : examplesOf(one, here)
  })
}

function at(root: Json, pointer: readonly string[]): Json | undefined {
  return pointer.reduce<Json | undefined>((value, key) => (value as { [key: string]: Json } | undefined)?.[key], root)
}

function put(root: Json, pointer: readonly string[], value: Json): void {
  const last = pointer.at(-1) ?? ''
  const parent = pointer
    .slice(0, -1)
    .reduce((node, key) => (node[key] ??= {}) as { [key: string]: Json }, root as { [key: string]: Json })
  parent[last] = value
}

test.run()
