// Whether the service of this executable lives already, when a person starts the executable itself: a second process of it would work on
// the same data. By what the kernel says of each process, since whoever is killed writes nothing down.
// Must hold: what supervisors, handovers and the application itself start is never refused. If in doubt, this process starts.

import { readdirSync, readFileSync, realpathSync } from 'node:fs'
import { descendantsOf } from '../../../agent/first.ts'
import { type OwnWords, refuse } from './release.ts'

/** Ends this process if a person has started it beside the service that an installer has put there. */
export function refuseBeside({ service, commands }: OwnWords, executable: string): void {
  if (process.platform !== 'linux' || process.env['BATON_CONTAINER'] === '1') return // it may see the host's processes
  const found = livingService(executable)
  if (found === null || isBelow(found.pid) || hasOtherData(found.config)) return
  const words = commands === 'baton' ? `${service} baton` : service
  refuse(
    `expected no other process of ${service}, found ${found.pid}, which serves by ${found.config}: this one would work on the same data beside it`,
    `\`${words} status\` shows it, \`${words} stop\` ends it; another STATE_DIRECTORY gives this one data of its own`,
  )
}

/** The process that a supervisor, or a handover, has started from the same path, and the path of its configuration. */
function livingService(executable: string): { pid: number; config: string } | null {
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name) || name === String(process.pid)) continue
    const words = textOf(`/proc/${name}/cmdline`).split('\0') // empty for a process that has ended
    const at = words.indexOf('serve', 1)
    const [file = '', , flag, config = ''] = words.slice(at - 1)
    if (at < 1 || flag !== '--config' || !isSame(file, executable) || depthOf(name) > depthOf('self')) continue
    return { pid: Number(name), config }
  }
  return null
}

function isSame(file: string, executable: string): boolean {
  if (file === executable || !file.startsWith('/')) return file === executable
  try {
    return realpathSync(file) === executable
  } catch {
    return false // what replaces it is not there yet
  }
}

/** How many process namespaces deep: a container on this host may have a service at the same path. */
function depthOf(name: string): number {
  return (
    /^NSpid:(.*)$/m
      .exec(textOf(`/proc/${name}/status`))?.[1]
      ?.trim()
      .split(/\s+/).length ?? 1
  )
}

/** Whether this process has been started below the other one: then the application has started it, and not a person. */
function isBelow(pid: number): boolean {
  return descendantsOf(pid).some((one) => one.pid === process.pid)
}

function hasOtherData(config: string): boolean {
  const { STATE_DIRECTORY: own } = process.env
  if (own === undefined) return false
  try {
    return (JSON.parse(readFileSync(config, 'utf8')) as { stateDirectory?: unknown }).stateDirectory !== own
  } catch {
    return true // another user's configuration
  }
}

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return ''
  }
}
