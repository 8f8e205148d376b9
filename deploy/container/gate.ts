// The gate of a new container behind a holder: it is started while the old one serves, waits in its first code, and begins when the
// old one has ended (last-process.ts). Also the turn (agent/handover/turn.ts) of a service of which two containers may serve at once.
// Must hold: a waiting container ends if this process ends, since it waits on a connection to it; the gate's socket is removed before
// the gate opens, so that a later start of the same container does not wait.

import { existsSync } from 'node:fs'
import { rm, writeFile } from 'node:fs/promises'
import { createServer, type Socket } from 'node:net'
import { join } from 'node:path'
import {
  durationText,
  BatonError,
  containerGate,
  containerTurn,
  gateGreeting,
  type Order,
  ORDERS,
  orderOf,
  untilWell,
} from '../../agent/words.ts'
import type { Engine } from './engine/engine.ts'
import { holderOf } from './hold.ts'
import { type ContainerInspection, type ImageInspection, isEmpty, isSame, labelsOf } from './inspection.ts'
import type { Job } from './job.ts'
import { IMAGE_LABELS } from './reference.ts'
import { type Limits, LONGER, refuseStopped, type Tools } from './request.ts'

/** folder in which the switcher has the volume of the service's holder */
export const GATES = '/run/baton-gates'
const [LOOK_MS, GREETING_MAX_BYTES] = [20, 200]
/** the engine may call a container unhealthy that waits for longer than this */
const STOP_MAX_SECONDS = 30

/** How a container is replaced. `stopped`: the new one is started when the old one has ended. */
export type Replacing = Order | 'stopped'

/** A container and its image. */
export interface Replaced {
  container: ContainerInspection
  image: ImageInspection
}

/**
 * What the two images and the two containers allow. A switch that waits or overlaps needs both containers at once: behind a holder
 * neither has a port, but a fixed address belongs to one of them.
 */
export async function howToReplace(old: Replaced, next: Replaced, engine: Engine): Promise<Replacing> {
  if (engine.kind !== 'docker' || old.container.State.Status !== 'running') return 'stopped'
  if ((old.container.Config.StopTimeout ?? 0) > STOP_MAX_SECONDS || hasOwnAddress(next.container)) return 'stopped'
  // the engine gives it the other's `hostname`, by which a container finds its id, and so its gate and its turn
  if (next.container.HostConfig.NetworkMode.startsWith('container:')) return 'stopped'
  const asked = orderIn(next.image)
  // another program than the image's may begin at once
  if (asked === null || !isSame(next.container.Config.Entrypoint, next.image.Config?.Entrypoint)) return 'stopped'
  if ((await holderOf(old.container, engine)) === null) return 'stopped'
  return orderOf(orderIn(old.image) ?? 'stop-first', asked) ?? 'stopped'
}

export interface ContainerGate {
  /** Resolves when the new container waits here. Throws BatonError restart_failed if it does not, or is of another release. */
  arrival(job: Job, limits: Limits, tools: Pick<Tools, 'engine' | 'stop'>): Promise<void>
  /** The application may begin. */
  open(): Promise<void>
  [Symbol.asyncDispose](): Promise<void>
}

/** Listens for the new container, which is not started yet, and has no gate. */
export async function makeGate(id: string): Promise<ContainerGate> {
  const path = join(GATES, containerGate(id))
  const waiting = new Map<Socket, string>()
  const server = createServer((socket) => {
    waiting.set(socket, '')
    socket.on('error', () => {}) // 'close' follows
    socket.on('close', () => waiting.delete(socket))
    socket.on('data', (chunk) => {
      const said = `${waiting.get(socket) ?? ''}${chunk.toString('latin1')}`
      if (said.length > GREETING_MAX_BYTES) socket.destroy()
      else waiting.set(socket, said)
    })
  })
  // the folder is for the group of the sockets alone; no `chmod`, which would follow what the holder's user may have put there
  const before = process.umask(0)
  try {
    await new Promise<void>((resolve, reject) => server.once('error', reject).listen(path, resolve))
  } finally {
    process.umask(before)
  }
  return {
    async arrival({ origin, successor }, { healthTimeoutMs }, { engine, stop }) {
      const expected = origin.version === null ? null : gateGreeting(origin.version)
      const look = async (): Promise<string | null> => {
        refuseStopped(stop)
        const said = [...waiting.values()].find((text) => text.endsWith('\n'))
        if (said !== undefined && (expected === null || said === expected)) return null
        if (said !== undefined) fail(`expected version ${origin.version}, got ${JSON.stringify(said)}`)
        const state = (await engine.container(successor))?.State
        const memory = state?.OOMKilled === true ? ', out of memory' : ''
        if (state?.Running !== true)
          fail(
            `the new container stopped (exit code ${state?.ExitCode ?? 'unknown'}${memory}) before it was ready to take over`,
          )
        return `the new container was not ready to take over after ${durationText(healthTimeoutMs)}`
      }
      const late = await untilWell(look, healthTimeoutMs, LOOK_MS)
      if (late !== null) throw new BatonError('restart_failed', late, { hint: LONGER })
    },
    async open() {
      await removeGate(id)
      for (const socket of waiting.keys()) socket.end('b')
    },
    async [Symbol.asyncDispose]() {
      await removeGate(id)
      for (const socket of waiting.keys()) socket.destroySoon()
      server.close()
    },
  }
}

/** Whether this container has a gate, of this run or of one that is gone: one that runs has begun nothing then. */
export function hasGate(id: string): boolean {
  return existsSync(join(GATES, containerGate(id)))
}

export async function removeGate(id: string): Promise<void> {
  await rm(join(GATES, containerGate(id)), { force: true })
}

/** The new container serves beside the old one, and does not do yet what only one process may do. */
export async function keepTurn(id: string): Promise<void> {
  await writeFile(join(GATES, containerTurn(id)), '', { flag: 'wx' }).catch((cause: NodeJS.ErrnoException) => {
    if (cause.code !== 'EEXIST') throw cause
  })
}

export async function passTurn(id: string): Promise<void> {
  await rm(join(GATES, containerTurn(id)), { force: true })
}

/** What an image of the kit says; null: it is not known whether its first code waits. */
export function orderIn(image: ImageInspection): Order | null {
  const said = labelsOf(image)[IMAGE_LABELS.order]
  return ORDERS.find((one) => one === said) ?? null
}

function hasOwnAddress({ NetworkSettings, Config }: ContainerInspection): boolean {
  const all = Object.values(NetworkSettings.Networks ?? {})
  return !isEmpty(Config['MacAddress']) || all.some(({ IPAMConfig }) => !isEmpty(IPAMConfig))
}

function fail(message: string): never {
  throw new BatonError('restart_failed', message)
}
