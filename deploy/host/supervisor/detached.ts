// The supervisor of a service without systemd: starts, finds and stops the detached supervision (`supervise.ts`) and the service
// under it. Runs as the service's user.

import { spawn } from 'node:child_process'
import { isAlive, isCount, type Receipt, STOP_MAX_MS, USUAL_STOP_MS } from '../../../agent/install.ts'
import { BatonError, reasonOf } from '../../../agent/words.ts'
import { forgetCrashes, formatCrashes, readCrashes } from './crashes.ts'
import { endOne, endUnsupervised, servicePids, until } from './processes.ts'
import { readPidFile, runFilesOf } from './run-files.ts'
import { RESTART } from './supervise.ts'
import type { CommandSupervisor, Supervisor } from './supervisor.ts'

const START_MS = 90_000
/** how long the supervision may take for what it does beside the end of the service */
const AROUND_MS = 10_000

/** Pure: the supervisor's words in messages. */
export function detachedWords(receipt: Receipt): Pick<Supervisor, 'description' | 'logCommand'> {
  const { pidFile, log } = runFilesOf(receipt)
  return { description: `without systemd, pid file ${pidFile}`, logCommand: `tail -n 50 ${log}` }
}

export function detachedSupervisor(receipt: Receipt): CommandSupervisor {
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
  const start = async () => {
    if ((await state()).active) return
    await stopSupervision(files.pidFile)
    await forgetCrashes(files.crashes)
    await startAnew(receipt, async () => (await state()).active)
  }
  const stop = async () => {
    await stopSupervision(files.pidFile)
    await endUnsupervised(receipt)
    await forgetCrashes(files.crashes)
  }
  const restart = async () => {
    if (await restartedBy(receipt)) return
    await stop()
    await start()
  }
  return { ...detachedWords(receipt), state, start, stop, restart }
}

/** Resolves when a process of the service lives. Throws service_down. */
async function startAnew(receipt: Receipt, isActive: () => Promise<boolean>): Promise<void> {
  const { log, crashes } = runFilesOf(receipt)
  const failed = startSupervision(receipt)
  const running = async () => {
    if (!(await until(isActive, () => START_MS))) throw new Error('none of its processes started')
  }
  try {
    await Promise.race([running(), failed])
  } catch (cause) {
    const ended = (await readCrashes(crashes))?.crashes
    const why = ended === undefined ? reasonOf(cause) : formatCrashes(ended)
    throw new BatonError('service_down', `starting ${receipt.service}: ${why}`, {
      cause,
      hint: `run \`tail ${log}\` to see why`,
    })
  }
}

/** Has the supervision exchange the processes, while it keeps the sockets. False if it does not live, or not to the end of that. */
async function restartedBy(receipt: Receipt): Promise<boolean> {
  const file = await readPidFile(runFilesOf(receipt).pidFile)
  const former = await servicePids(receipt)
  if (file === null || former.length === 0) return false
  const { pid, startTime } = file.supervisor
  const lives = () => isAlive(pid, startTime)
  if (!lives()) return false
  endOne(pid, RESTART)
  const isNew = async () => {
    const now = await servicePids(receipt)
    return now.length > 0 && now.every((one) => !former.includes(one))
  }
  const stopMs = stopMsIn(runFilesOf(receipt).pidFile)
  await until(
    async () => !lives() || (await isNew()),
    async () => (await stopMs()) + USUAL_STOP_MS + START_MS,
  )
  return lives() && (await isNew())
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
    child.once('exit', (code, signal) => reject(new Error(`its supervisor ended with ${code ?? signal}`)))
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
  const stopMs = stopMsIn(pidFile)
  await until(
    () => !isAlive(pid, startTime),
    async () => (await stopMs()) + AROUND_MS,
  )
}

/** How long the supervision waits for the end of the service: as usual, or the longest that the file has said since. */
function stopMsIn(pidFile: string): () => Promise<number> {
  let mostMs = USUAL_STOP_MS
  return async () => {
    const said = (await readPidFile(pidFile))?.stopMs
    return (mostMs = isCount(said) && said <= STOP_MAX_MS ? Math.max(mostMs, said) : mostMs)
  }
}
