// The supervisor of a service without systemd: starts, finds and stops the detached supervision (`supervise.ts`) and the service
// under it. Runs as the service's user.

import { spawn } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { isAlive, type Receipt } from '../../../agent/install.ts'
import { BatonError, reasonOf } from '../../../agent/words.ts'
import { forgetCrashes, formatCrashes, readCrashes } from './crashes.ts'
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
    const ended = await readCrashes(files.crashes)
    const down = supervised ? 'activating' : ended?.isGivenUp === true ? 'failed' : 'inactive'
    return {
      active,
      word: active ? 'active' : down,
      mainPid: pids.at(-1) ?? null,
      restarts: supervised ? file.restarts : null,
      // a supervision that was killed starts nothing again
      crashes: ended === null ? null : { ...ended.crashes, isLooping: supervised && ended.crashes.isLooping },
    }
  }
  return {
    ...detachedWords(receipt),
    state,
    async start() {
      if ((await state()).active) return
      await stopSupervision(files.pidFile)
      await forgetCrashes(files.crashes)
      const failed = startSupervision(receipt)
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
        const ended = (await readCrashes(files.crashes))?.crashes
        const why = ended === undefined ? reasonOf(cause) : formatCrashes(ended)
        throw new BatonError('service_down', `starting ${receipt.service}: ${why}`, {
          cause,
          hint: `\`tail ${files.log}\` says why`,
        })
      }
    },
    async stop() {
      await stopSupervision(files.pidFile)
      await endService(receipt)
      await forgetCrashes(files.crashes)
    },
  }
}

/** Never resolves; rejects when the supervision ends. */
function startSupervision(receipt: Receipt): Promise<never> {
  const child = spawn(receipt.executable, ['start', '--supervise'], {
    cwd: '/',
    detached: true,
    stdio: 'ignore',
    // of the install, since PATH may hold another one
    env: receipt.node === undefined ? process.env : { BATON_NODE: receipt.node, ...process.env },
  })
  const failed = new Promise<never>((_resolve, reject) => {
    child.once('error', reject)
    child.once('exit', (code) => reject(new Error(`it ended with ${code}`)))
  })
  failed.catch(() => {})
  child.unref()
  return failed
}

async function stopSupervision(pidFile: string): Promise<void> {
  const file = await readPidFile(pidFile)
  if (file === null || !isAlive(file.supervisor.pid, file.supervisor.startTime)) return
  const { pid, startTime } = file.supervisor
  endOne(pid, 'SIGTERM')
  await until(() => !isAlive(pid, startTime), STOP_MS + 10_000)
}
