// The supervisor of a service without systemd: starts, finds and stops the detached supervision (`supervise.ts`) and the service
// under it. Runs as the service's user.

import { spawn } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { isAlive, type Receipt } from '../../../agent/install.ts'
import { BatonError } from '../../../agent/words.ts'
import { endOne, endService, servicePids, STOP_MS, until } from './processes.ts'
import { readPidFile, runFilesOf } from './run-files.ts'
import type { Supervisor } from './supervisor.ts'

const START_MS = 90_000

/** Pure: the supervisor's words in messages. */
export function detachedWords(receipt: Receipt): Pick<Supervisor, 'description' | 'logCommand'> {
  const { pidFile, log } = runFilesOf(receipt)
  return { description: `a detached process (pid file ${pidFile})`, logCommand: `tail -n 50 ${log}` }
}

export function detachedSupervisor(receipt: Receipt): Supervisor {
  const files = runFilesOf(receipt)
  const state = async () => {
    const [file, pids] = [await readPidFile(files.pidFile), await servicePids(receipt)]
    const supervised = file !== null && isAlive(file.supervisor.pid, file.supervisor.startTime)
    const active = pids.length > 0
    return {
      active,
      word: active ? 'active' : supervised ? 'activating' : 'inactive',
      mainPid: pids.at(-1) ?? null,
      restarts: supervised ? file.restarts : null,
    }
  }
  return {
    ...detachedWords(receipt),
    state,
    async start() {
      if ((await state()).active) return
      await stopSupervision(files.pidFile)
      const child = spawn(receipt.executable, ['start', '--supervise'], {
        cwd: '/',
        detached: true,
        stdio: 'ignore',
        env: environmentFor(receipt),
      })
      const failed = new Promise<never>((_resolve, reject) => {
        child.once('error', reject)
        child.once('exit', (code) => reject(new Error(`it ended with ${code}`)))
      })
      failed.catch(() => {})
      child.unref()
      const deadline = performance.now() + START_MS
      const running = async () => {
        while (!(await state()).active) {
          if (performance.now() > deadline) throw new Error('no process of it appeared')
          await sleep(50)
        }
      }
      try {
        await Promise.race([running(), failed])
      } catch (cause) {
        throw new BatonError('service_down', `starting ${receipt.service}`, {
          cause,
          hint: `\`tail ${files.log}\` says why`,
        })
      }
    },
    async stop() {
      await stopSupervision(files.pidFile)
      await endService(receipt)
    },
  }
}

/** The environment to start the service with: the caller's, plus the Node of the install, since PATH may hold another one. */
export function environmentFor({ node }: Pick<Receipt, 'node'>): NodeJS.ProcessEnv {
  return node === undefined ? process.env : { BATON_NODE: node, ...process.env }
}

async function stopSupervision(pidFile: string): Promise<void> {
  const file = await readPidFile(pidFile)
  if (file === null || !isAlive(file.supervisor.pid, file.supervisor.startTime)) return
  const { pid, startTime } = file.supervisor
  endOne(pid, 'SIGTERM')
  await until(() => !isAlive(pid, startTime), STOP_MS + 10_000)
}
