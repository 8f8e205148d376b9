// The same on a host with systemd: real executables, installed as an operator does it, started again by the unit.

import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import type { JournalState } from '../../../agent/disk/journal.ts'
import type { StepFault } from '../../fixtures/at-steps.ts'
import type { Asked, Order } from '../../fixtures/asker.ts'
import { bootWithReleases, EXECUTABLE, put, SERVICE } from '../../lab/managed.ts'
import { descriptorsOf } from '../subject.ts'
import { type Ground, hasTaken, inOrderOfBirth, TAGS, UPDATE } from './ground.ts'

const PORT = 8080
const STATE = `/var/lib/${SERVICE}`
const FAULTS = `${STATE}/faults.json`
const DROP_IN = `[Unit]\nStartLimitIntervalSec=0\n[Service]\nEnvironment=BATON_TEST_FAULTS=${FAULTS}\n`
const ASKER = fileURLToPath(new URL('../../fixtures/asker.ts', import.meta.url))
const CGROUPS = existsSync('/sys/fs/cgroup/unified') ? '/sys/fs/cgroup/unified' : '/sys/fs/cgroup'

export async function openSystemdGround(): Promise<Ground> {
  const host = await bootWithReleases(TAGS.map((tag) => ({ tag, fault: 'at-steps' as const })))
  try {
    await put(host, `/etc/systemd/system/${SERVICE}.service.d/faults.conf`, DROP_IN)
    await host.install(UPDATE)
    const config = JSON.parse(await readFile(await host.path(`/etc/${SERVICE}/config.json`), 'utf8')) as {
      dashboard: { password: string }
    }
    const prefix = await host.network()
    const asker = await openAsker(prefix, config.dashboard.password)
    const root = await host.path('')
    const group = join(CGROUPS, `baton-${host.name}`, 'system.slice', `${SERVICE}.service`, 'cgroup.procs')
    const all = () =>
      existsSync(group) ? readFileSync(group, 'utf8').trim().split('\n').filter(Boolean).map(Number) : []
    const tagOf = async (path: string) => {
      const { stdout } = await host.run([path, '--version'])
      return /^\S+ (v\S+)\n$/.exec(stdout)?.[1] ?? null
    }
    return {
      name: 'systemd',
      port: PORT,
      prefix,
      isSupervised: true,
      // the service's own user writes it again
      arm: (list: StepFault[]) => writeFile(`${root}${FAULTS}`, JSON.stringify(list)),
      armed: async () =>
        (JSON.parse(await readFile(`${root}${FAULTS}`, 'utf8').catch(() => '[]')) as StepFault[]).length,
      took: (born, step) => hasTaken(`${root}${FAULTS}`, born, step),
      api: (method, path, body) => asker.ask(method, path, body),
      answers: async () => {
        const { status } = await asker.ask('GET', '/version')
        if (status !== 200) throw new Error(`status ${status}`)
      },
      pids: () => inOrderOfBirth(all().filter(isServing)),
      hit: (pid, signal) => void process.kill(pid, signal),
      revive: () => Promise.resolve(),
      evidence: async (pid) => ({
        executable: await tagOf(EXECUTABLE),
        backup: await tagOf(`${EXECUTABLE}.backup`),
        leftovers: await leftoversBelow(root),
        journal: JSON.parse(await readFile(`${root}${STATE}/update/journal.json`, 'utf8')) as JournalState,
        processes: all().length,
        descriptors: descriptorsOf(pid, PORT),
        integrity: (await host.sql('pragma integrity_check')).trim(),
      }),
      rows: async () => (await host.sql('select message from logs')).trim().split('\n'),
      output: () => host.ok('journalctl', '-u', SERVICE, '-o', 'cat', '--no-pager'),
      async [Symbol.asyncDispose]() {
        asker.close()
        await host.off()
      },
    }
  } catch (error) {
    await host.off()
    throw error
  }
}

interface Asker {
  ask(method: string, path: string, body?: unknown): Promise<{ status: number; body: unknown }>
  close(): void
}

/** A process in the host's network that makes the requests. */
async function openAsker(prefix: string[], password: string): Promise<Asker> {
  const [command = '', ...args] = [...prefix, process.execPath, ...process.execArgv, ASKER, String(PORT)]
  const child = spawn(command, args, { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] })
  await once(child, 'message')
  const waiting = new Map<number, (asked: Asked) => void>()
  let last = 0
  child.on('message', (asked: Asked) => {
    waiting.get(asked.id)?.(asked)
    waiting.delete(asked.id)
  })
  return {
    ask: async (method, path, body) => {
      const id = ++last
      const { promise, resolve } = Promise.withResolvers<Asked>()
      waiting.set(id, resolve)
      child.send({ id, method, path, password, body } satisfies Order)
      const { answer, error } = await promise
      if (answer === null) throw new Error(error ?? 'no answer')
      return answer
    },
    close: () => void child.kill(),
  }
}

async function leftoversBelow(root: string): Promise<string[]> {
  const expected = new Set([SERVICE, `${SERVICE}.backup`, 'receipt.json'])
  const beside = (await readdir(`${root}/opt/${SERVICE}`)).filter((name) => !expected.has(name))
  const state = (await readdir(`${root}${STATE}`, { recursive: true })).filter((name) =>
    /\.tmp$|\.partial$|lock\.json$/.test(name),
  )
  return [...beside, ...state]
}

function isServing(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').startsWith(`${EXECUTABLE}\0serve\0`)
  } catch {
    return false
  }
}
