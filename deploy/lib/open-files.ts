// What a process and everything below it has open: its files, its sockets, and the ports that they are bound to. Reads /proc only.
// Must hold: a process that ends meanwhile, or that this user may not look at, has nothing open.

import { readdir, readlink } from 'node:fs/promises'
import { descendantsOf } from '../../agent/install.ts'
import { endsAtLoopback, EVERYWHERE, hexOf, socketTable } from './socket-table.ts'

/** far more than an application opens before it serves */
const FILES_MAX = 4096

export interface OpenFile {
  pid: number
  descriptor: string
  /** as /proc shows it: a path, or `socket:[123]` */
  target: string
}

export interface Bound {
  port: number
  isListening: boolean
  isOnLoopback: boolean
  /** a UDP socket that is connected only asks somebody, as a resolver does */
  isConnected: boolean
}

/** Of the process and everything below it. */
export async function openFilesBelow(pid: number): Promise<OpenFile[]> {
  const pids = [pid, ...descendantsOf(pid).map((below) => below.pid)]
  return (await Promise.all(pids.map(openFiles))).flat().slice(0, FILES_MAX)
}

async function openFiles(pid: number): Promise<OpenFile[]> {
  const names = await readdir(`/proc/${pid}/fd`).catch(() => [])
  return await Promise.all(
    names.slice(0, FILES_MAX).map(async (descriptor) => {
      const target = await readlink(`/proc/${pid}/fd/${descriptor}`).catch(() => '')
      return { pid, descriptor, target }
    }),
  )
}

/** Those of `files` that are bound. `pid`: a process in whose network they are. */
export async function boundSockets(pid: number, files: readonly OpenFile[], name: 'tcp' | 'udp'): Promise<Bound[]> {
  const sockets = new Set(files.flatMap(({ target }) => /^socket:\[(\d+)\]$/.exec(target)?.[1] ?? []))
  const bound = (await socketTable(name, pid)).filter(({ inode }) => sockets.has(inode))
  return bound.map(({ port, isListening, local, remote }) => ({
    port,
    isListening,
    isOnLoopback: endsAtLoopback(local),
    isConnected: !remote.endsWith(':0000'),
  }))
}

/** Whether a socket of this host listens on that TCP port at every address. False if this host cannot tell. */
export async function listensEverywhere(port: number): Promise<boolean> {
  const table = await socketTable('tcp')
  return table.some(
    ({ isListening, local }) => isListening && EVERYWHERE.some((at) => local === `${at}:${hexOf(port)}`),
  )
}
