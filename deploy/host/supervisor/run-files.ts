// The files that a service without systemd keeps beside its state: a pid file (as JSON), a log, and how it has ended by itself.
// Must hold: they are the service's own files; only its user reads or writes them.

import { copyFile, readFile, rename, stat, truncate, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Receipt } from '../../../agent/install.ts'
import { parsedJson } from '../../../agent/words.ts'
import type { CrashFile } from './crashes.ts'

export interface Process {
  pid: number
  /** clock ticks since boot; null on hosts without /proc */
  startTime: string | null
}

export interface PidFile {
  supervisor: Process
  service: Process | null
  restarts: number
  /** how long its end may take in all, which the service has said at its stop; absent: as usual */
  stopMs?: number
}

const LOG_MAX_BYTES = 10 * 1024 * 1024
const LOGS_KEPT = 3

export function runFilesOf({ service, stateDirectory }: Pick<Receipt, 'service' | 'stateDirectory'>) {
  const directory = join(stateDirectory, 'run')
  return {
    directory,
    pidFile: join(directory, `${service}.pid`),
    log: join(directory, `${service}.log`),
    /** how it has ended by itself; absent: it has not, since it was started */
    crashes: join(directory, `${service}.crashes.json`),
    /** where the service leaves its listening sockets, as with systemd */
    notify: join(directory, 'notify'),
  }
}

export async function readPidFile(path: string): Promise<PidFile | null> {
  return (parsedJson(await readFile(path, 'utf8').catch(() => '')) ?? null) as PidFile | null
}

/** All or nothing, if the power stays. */
export async function writeRunFile(path: string, file: PidFile | CrashFile): Promise<void> {
  await writeFile(`${path}.new`, `${JSON.stringify(file)}\n`, { mode: 0o600 })
  await rename(`${path}.new`, path)
}

/** 0 if there is none. */
export async function sizeOf(path: string): Promise<number> {
  return await stat(path).then(
    ({ size }) => size,
    () => 0,
  )
}

/** Keeps the log and three older ones. The service opened it to append, so it goes on writing into the truncated file. */
export async function rotateLog(log: string, maxBytes = LOG_MAX_BYTES, kept = LOGS_KEPT): Promise<boolean> {
  if ((await sizeOf(log)) < maxBytes) return false
  for (let n = kept - 1; n >= 1; n--) await rename(`${log}.${n}`, `${log}.${n + 1}`).catch(() => {})
  await copyFile(log, `${log}.1`)
  await truncate(log)
  return true
}
