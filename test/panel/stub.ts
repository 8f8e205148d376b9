// A service that is only its endpoints: the real panel, guard and routes before a scripted updater, so that a test can put
// the page into a state that a real service is in for a moment only, or after minutes. The truth is tested on the real one.

import { createServer } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { BatonError } from '../../agent/words/errors.ts'
import { makePanel } from '../../agent/web/panel.ts'
import { makeAdmin } from '../../agent/http/admin.ts'
import { readPolicy } from '../../agent/update/schedule/policy.ts'
import { MODES, type PolicyFile } from '../../agent/words/schedule.ts'
import { irreversibleFault, type Rehearsal } from '../../agent/words/rehearsal.ts'
import { type Instance, type Kind, type Operation, type Status, type VersionReport } from '../../agent/words/state.ts'
import { newOperation } from '../../agent/update/operation.ts'

export const TOKEN = 'correct horse battery staple'

export interface World {
  status: Status
  report: VersionReport
  /** 501 with these, null for a managed install */
  unmanaged: ({ detail: string; reason: string; route: string } & Record<string, string | null>) | null
  /** true: every connection is reset */
  down: boolean
  /** a proxy in front of the service answers its endpoints with this status instead; null: there is none */
  login: 302 | 401 | null
  /** the tag of a release with no way back, and why; an update to it is refused unless a person allows it. Null: there is none */
  noWayBack: { tag: string; trial: Rehearsal } | null
  /** a tag that the feed does not have; null: it has all */
  missing: string | null
  /** what the operator's file says of updates by itself */
  limits: PolicyFile
  /** what the panel has written of it */
  policy: PolicyFile
  /** what `POST /admin/update` and `…/rollback` do beside answering 202 */
  onStart: (operation: Operation) => void
}

export interface Stub {
  url: string
  world: World
  /** method and path of every request to the endpoints */
  asked: string[]
  close: () => Promise<void>
}

export interface StubOptions {
  /** default: any free one */
  port?: number
  basePath?: string
  password?: string | null
}

export async function serveStub({
  port: wanted = 0,
  basePath = '',
  password = TOKEN,
}: StubOptions = {}): Promise<Stub> {
  const world: World = {
    status: idle(),
    report: report(),
    unmanaged: null,
    down: false,
    login: null,
    noWayBack: null,
    missing: null,
    limits: {},
    policy: {},
    onStart: () => {},
  }
  const asked: string[] = []
  const begin = (kind: Kind, to: string | null): Operation => {
    if (world.status.state === 'in_flight') throw new BatonError('update_in_flight', 'an operation is running')
    const started = operation(kind, { from: world.status.instance.version, to })
    world.status = { ...world.status, state: 'in_flight', operation: started }
    world.onStart(started)
    return started
  }
  const updater = {
    update: async (tag: string | null, { allowIrreversible }: { allowIrreversible: boolean }) => {
      const { noWayBack, missing } = world
      if (tag !== null && tag === missing) throw new BatonError('release_not_found', `the feed has no release ${tag}`)
      if (noWayBack !== null && tag === noWayBack.tag && !allowIrreversible)
        throw irreversibleFault(tag, noWayBack.trial)
      return begin('update', tag)
    },
    rollback: async () => {
      if (world.status.backup === null) throw new BatonError('no_backup', 'there is no backup of the executable')
      return begin('rollback', world.status.backup)
    },
    /** the test moves it on */
    cancel: async () => {
      const { operation: running } = world.status
      if (running === null || ['swap', 'restart'].includes(running.stage)) {
        throw new BatonError('too_late', 'no operation is running')
      }
      return running
    },
    proceed: async () => {
      const { operation: running } = world.status
      if (running === null || running.waits === undefined) throw new BatonError('too_late', 'no operation waits')
      delete running.waits
      return running
    },
    check: async () => ({ ...world.report, running: world.status.instance.version, checkedAt: secondsAgo(0) }),
    status: async () => world.status,
    policy: async (own: unknown) => {
      if (own !== undefined) {
        const { faults } = readPolicy(own, 'UTC', false)
        if (faults.length > 0) throw new BatonError('invalid_request', faults.join('; '))
        world.policy = own as PolicyFile
      }
      if (world.status.schedule === undefined) throw new BatonError('not_found', 'there is no schedule')
      const pausedUntil = world.limits.pauseUntil ?? world.policy.pauseUntil ?? null
      const { mode = world.status.schedule.most } = world.limits
      const wanted = world.policy.mode ?? mode
      const lower = MODES.indexOf(wanted) < MODES.indexOf(mode) ? wanted : mode
      const skip = [world.limits.skip, world.policy.skip].filter((tag) => tag !== undefined)
      const policy = { ...world.status.schedule.policy, skip }
      const { now } = world.status.schedule
      const available = { code: 'available', says: 'v1.1.0 is available', tag: 'v1.1.0' } as const
      const schedule = {
        ...world.status.schedule,
        pausedUntil,
        mode: lower,
        policy,
        now: lower === 'notify' ? available : now,
      }
      world.status = { ...world.status, schedule }
      return { limits: world.limits, own: world.policy, faults: [], schedule }
    },
    operations: () => Promise.resolve(world.status.history),
    attend: () => Promise.resolve(),
    assertManaged() {
      if (world.unmanaged === null) return
      const { detail, ...members } = world.unmanaged
      throw new BatonError('not_managed', detail, { members })
    },
  }
  const panel = makePanel({ basePath, service: 'beacon', passwordHeader: 'authorization' })
  const routes = makeAdmin(
    { basePath, password, trustedProxy: null, passwordHeader: 'authorization', authorize: null, log: () => {} },
    () => Promise.resolve(updater),
  )
  const sockets = new Set<Socket>()
  const server = createServer((req, res) => {
    if (world.down) {
      req.socket.resetAndDestroy()
      return
    }
    const { login } = world
    if (login !== null && req.url?.includes('/admin/') === true) {
      res.writeHead(login, { 'content-type': 'text/html', location: 'https://login.example.org/' }).end('<h1>401</h1>')
      return
    }
    if (req.url?.includes('/admin/') === true) asked.push(`${req.method} ${req.url.slice(basePath.length)}`)
    if (!panel(req, res) && !routes(req, res)) res.writeHead(404).end()
  })
  server.on('connection', (socket) => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
  })
  await new Promise<void>((resolve) => server.listen(wanted, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return {
    url: `http://127.0.0.1:${port}${basePath}`,
    world,
    asked,
    async close() {
      for (const socket of sockets) socket.destroy()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

export const secondsAgo = (seconds: number): string => new Date(Date.now() - seconds * 1000).toISOString()

let counter = 0

export function instance(version: string, startedAt = secondsAgo(3 * 86_400)): Instance {
  counter += 1
  return { id: `i${String(counter).padStart(3, '0')}c0ffee`, pid: 4000 + counter, version, startedAt }
}

export function operation(kind: Kind, some: Partial<Operation>): Operation {
  counter += 1
  const known = { id: `o${counter}`, kind, from: 'v1.0.0', to: 'v1.1.0', startedAt: secondsAgo(0) }
  return { ...newOperation(known), ...some }
}

const UNSIGNED = { signed: false, metadata: [], yanked: [], warning: null }

/** `some`: what is other than in one whose way back is open. */
export function rehearsed(some: Partial<Rehearsal> = {}): Rehearsal {
  const open = { verdict: 'reversible', reason: 'v1.0.0 can read and write the data as v1.1.0 leaves it' } as const
  return { ...open, rows: 1042, copyMs: 31, migrationMs: 512, tookMs: 1870, ...some }
}

export const NO_WAY_BACK = rehearsed({
  verdict: 'irreversible',
  code: 'cannot_start',
  reason: 'v1.0.0 does not start with the data that v1.1.0 leaves behind: no such column: body',
})

export function idle(version = 'v1.0.0'): Status {
  return {
    state: 'idle',
    operation: null,
    instance: instance(version),
    backup: null,
    probation: null,
    trust: UNSIGNED,
    history: [],
  }
}

export function report(some: Partial<VersionReport> = {}): VersionReport {
  return {
    installed: 'v1.0.0',
    running: 'v1.0.0',
    latest: 'v1.1.0',
    updateAvailable: true,
    release: {
      tag: 'v1.1.0',
      notes: NOTES,
      publishedAt: secondsAgo(3 * 86_400),
      sizeBytes: 30_412_288,
      url: null,
      schema: null,
    },
    between: [],
    database: null,
    skipped: [],
    trust: UNSIGNED,
    checkedAt: secondsAgo(0),
    problem: null,
    ...some,
  }
}

export const NOTES = `Faster completions, and a quota history that no longer forgets.

- Detached completions are cached for a week (was: a day)
- The quota history keeps its rows when two tokens share a name
- \`GET /healthz\` answers while the database is being snapshotted

State: schema 4, upgraded in place. Rolling back to v1.0.x keeps every row.`
