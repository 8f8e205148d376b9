// What can be soaked: a service that is up, can be switched, and knows which rows it has. Baton, and the control.

import { type ChildProcess, spawn } from 'node:child_process'
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import type { Status } from '../../agent/words/state.ts'
import { ask, freePort, install, processesNaming } from '../fixtures/install.ts'
import { publishTo, releases } from '../fixtures/releases.ts'

export interface Subject extends AsyncDisposable {
  port: number
  headers: Record<string, string>
  /** path and body of a write; `{id}` becomes an id that a row must then have */
  write: { path: string; body: string }
  /** there and back; resolves when one process is left, with the milliseconds that the switch itself took */
  switch(count: number): Promise<number>
  pids(): number[]
  /** the serving process */
  pid(): Promise<number>
  /** rows that are there, by their text */
  rows(): Promise<{ texts: string[]; integrity: string }>
}

/** Real single executables, v1.0.0 and v1.1.0; the first switch is an update, the others are rollbacks there and back. */
export async function baton(probationMs: number): Promise<Subject> {
  const [v100, v110] = await releases([{ tag: 'v1.0.0' }, { tag: 'v1.1.0' }])
  if (v100 === undefined || v110 === undefined) throw new Error('no releases')
  const folder = await mkdtemp(join(tmpdir(), 'baton-feed-'))
  const home = await install({
    release: v100,
    host: '0.0.0.0',
    feed: await publishTo(folder, [v110]),
    update: { probation: `${probationMs}ms`, drainTimeout: '10s' },
  })
  await home.start()
  const status = async () => (await home.api('GET', '/admin/update/status')).body as Status
  const port = home.port ?? 0
  return {
    port,
    headers: {},
    write: { path: '/api/logs', body: '{"level":"info","message":"{id}"}' },
    async switch(count) {
      const before = home.pids()
      const path = count === 0 ? '/admin/update' : '/admin/update/rollback'
      const answer = await home.api('POST', path)
      if (answer.status !== 202) throw new Error(`expected 202, got ${answer.status}: ${JSON.stringify(answer.body)}`)
      const ended = await home.settled()
      if (ended.outcome !== (count === 0 ? 'updated' : 'rolled_back')) throw new Error(JSON.stringify(ended))
      await gone(() => home.pids().some((pid) => before.includes(pid)))
      return ended.handover?.switchMs ?? NaN
    },
    pids: home.pids,
    pid: async () => (await status()).instance.pid,
    rows() {
      const database = new DatabaseSync(home.database, { readOnly: true })
      try {
        const texts = database
          .prepare('SELECT message FROM logs')
          .all()
          .map((row) => String(row['message']))
        return Promise.resolve({
          texts,
          integrity: String(database.prepare('PRAGMA integrity_check').get()?.['integrity_check']),
        })
      } finally {
        database.close()
      }
    },
    async [Symbol.asyncDispose]() {
      await home[Symbol.asyncDispose]()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

/** See naive.ts. */
export async function naive(): Promise<Subject> {
  const port = await freePort()
  const label = `naive-${port}`
  const program = fileURLToPath(new URL('naive.ts', import.meta.url))
  const first: ChildProcess = spawn(process.execPath, [program, String(port), label], {
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  })
  await new Promise((resolve) => first.once('message', resolve))
  first.disconnect()
  const pids = () => processesNaming(label)
  return {
    port,
    headers: {},
    write: { path: '/', body: '{"message":"{id}"}' },
    async switch() {
      const before = pids()
      const began = performance.now()
      for (const pid of before) process.kill(pid, 'SIGUSR2')
      await gone(() => pids().some((pid) => before.includes(pid)))
      return Math.round(performance.now() - began)
    },
    pids,
    pid: () => Promise.resolve(pids()[0] ?? 0),
    async rows() {
      const { body } = await ask(port, 'GET', '/rows', null)
      return { texts: body as string[], integrity: 'ok' }
    },
    async [Symbol.asyncDispose]() {
      for (const pid of pids()) process.kill(pid, 'SIGKILL')
      await gone(() => pids().length > 0)
    },
  }
}

/** Open descriptors but those of established connections to `port`, which come and go. */
export function descriptorsOf(pid: number, port: number): number {
  const local = `:${port.toString(16).toUpperCase().padStart(4, '0')}`
  const established = new Set(
    readFileSync(`/proc/${pid}/net/tcp`, 'utf8')
      .split('\n')
      .map((line) => line.trim().split(/\s+/))
      .filter((fields) => fields[1]?.endsWith(local) === true && fields[3] === '01')
      .map((fields) => `socket:[${fields[9]}]`),
  )
  return readdirSync(`/proc/${pid}/fd`).filter((fd) => !established.has(targetOf(`/proc/${pid}/fd/${fd}`))).length
}

function targetOf(link: string): string {
  try {
    return readlinkSync(link)
  } catch {
    return '' // closed since it was listed
  }
}

async function gone(still: () => boolean): Promise<void> {
  const deadline = Date.now() + 30_000
  while (still()) {
    if (Date.now() > deadline) throw new Error('the predecessor did not leave within 30 s')
    await sleep(50) // a look reads the command line of each process of this machine
  }
}
