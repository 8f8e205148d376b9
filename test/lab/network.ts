// A machine room: a switch and systemd hosts on it, each with an address and sshd. A program that must reach the hosts runs in the
// switch's namespace. Must hold: the end of the scope removes every namespace that was made.
//
//   await using room = await bootRoom(8)
//   await room.run(['ssh', …room.ssh, 'root@10.77.0.11', 'hostname'])
//   await room.unplug(room.hosts[3])          // the link is down, and no program is notified

import { execFile, spawn, spawnSync } from 'node:child_process'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { bootHost, type Host, type Ran, type RunOptions } from './systemd.ts'

export interface RoomHost extends Host {
  address: string
  /** name of its network namespace */
  netns: string
}

export interface Room extends AsyncDisposable {
  hosts: RoomHost[]
  /** address of the switch's namespace, in which the controller, feeds and loads run */
  address: string
  /** goes before a command to run it in the switch's namespace */
  prefix: string[]
  /** private key of root on every host */
  key: string
  /** a folder for the test's files, removed with the room */
  folder: string
  /** runs a command in the switch's namespace; never rejects for an exit code */
  run(command: readonly string[], options?: RunOptions): Promise<Ran>
  unplug(host: RoomHost): Promise<void>
  plug(host: RoomHost): Promise<void>
}

const PREPARE = join(import.meta.dirname, 'with-sshd')
const AT_ONCE = 4
const HOSTS_MAX = 40
const exec = promisify(execFile)
const ip = async (...args: string[]) => void (await exec('ip', args, { timeout: 10_000 }))

/** `furnish` prepares the first host; the others get copies of its disk, which is quicker than to prepare each. */
export async function bootRoom(count: number, furnish?: (first: RoomHost) => Promise<void>): Promise<Room> {
  if (!(count >= 1 && count <= HOSTS_MAX)) throw new RangeError(`hosts: expected 1 to ${HOSTS_MAX}, got ${count}`)
  const name = (what: string) => `room${process.pid}${what}`
  const spaces: string[] = []
  const clear = () => {
    for (const space of spaces.splice(0)) spawnSync('ip', ['netns', 'del', space], { stdio: 'ignore' })
  }
  process.once('exit', clear)
  const folder = await mkdtemp(join(tmpdir(), 'baton-room-'))
  const hosts: RoomHost[] = []
  const off = async () => {
    await Promise.all(hosts.map((host) => host.off()))
    clear()
    process.off('exit', clear)
    await rm(folder, { recursive: true, force: true })
  }
  const add = async (space: string) => {
    await ip('netns', 'add', space)
    spaces.push(space)
    await ip('-n', space, 'link', 'set', 'lo', 'up')
  }
  const cable = (number: number) => `v${number}`
  try {
    const key = join(folder, 'key')
    await exec('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', key])
    const middle = name('s')
    await add(middle)
    await ip('-n', middle, 'link', 'add', 'br0', 'type', 'bridge')
    await ip('-n', middle, 'addr', 'add', '10.77.0.1/24', 'dev', 'br0')
    await ip('-n', middle, 'link', 'set', 'br0', 'up')
    const numbers = Array.from({ length: count }, (_, i) => i + 1)
    for (const number of numbers) {
      const space = name(`h${number}`)
      await add(space)
      const peer = ['type', 'veth', 'peer', 'name', 'eth0', 'netns', space]
      await ip('-n', middle, 'link', 'add', cable(number), ...peer)
      await ip('-n', middle, 'link', 'set', cable(number), 'master', 'br0', 'up')
      await ip('-n', space, 'addr', 'add', `10.77.0.${10 + number}/24`, 'dev', 'eth0')
      await ip('-n', space, 'link', 'set', 'eth0', 'up')
    }
    const publicKey = (await readFile(`${key}.pub`, 'utf8')).trim()
    const boot = async (number: number, like?: Host): Promise<RoomHost> => {
      const netns = name(`h${number}`)
      const way = like === undefined ? { prepare: PREPARE, env: { LAB_KEY: publicKey } } : { like }
      const one = { ...(await bootHost({ netns, ...way })), address: `10.77.0.${10 + number}`, netns }
      hosts.push(one)
      return one
    }
    const first = await boot(1)
    if (furnish !== undefined) {
      await furnish(first)
      await first.cut()
    }
    const like = furnish === undefined ? undefined : first
    const booted = [first, ...(await inTurns(numbers.slice(1), (number) => boot(number, like)))]
    if (furnish !== undefined) await first.power()
    hosts.splice(0, hosts.length, ...booted)
    const prefix = ['nsenter', `--net=/run/netns/${middle}`]
    const link = (host: RoomHost, state: 'up' | 'down') =>
      ip('-n', middle, 'link', 'set', cable(booted.indexOf(host) + 1), state)
    return {
      hosts,
      address: '10.77.0.1',
      prefix,
      key,
      folder,
      run: (command, options) => ran([...prefix, ...command], options),
      unplug: (host) => link(host, 'down'),
      plug: (host) => link(host, 'up'),
      [Symbol.asyncDispose]: off,
    }
  } catch (error) {
    await off()
    throw error
  }
}

/** Does `work` for each, a few at once; results in order. Throws the first failure after all have ended. */
export async function inTurns<T, R>(list: readonly T[], work: (one: T) => Promise<R>, atOnce = AT_ONCE): Promise<R[]> {
  const results: R[] = []
  const failures: unknown[] = []
  let next = 0
  const worker = async () => {
    for (let i = next++; i < list.length; i = next++) {
      await work(list[i] as T).then(
        (result) => (results[i] = result),
        (error: unknown) => failures.push(error),
      )
    }
  }
  await Promise.all(Array.from({ length: atOnce }, worker))
  if (failures.length > 0) throw failures[0]
  return results
}

function ran(command: readonly string[], { input = '', timeoutMs = 120_000, env = {} }: RunOptions = {}): Promise<Ran> {
  return new Promise((resolve, reject) => {
    const [file = '', ...args] = command
    const child = spawn(file, args, { timeout: timeoutMs, killSignal: 'SIGKILL', env: { ...process.env, ...env } })
    const output = { stdout: '', stderr: '' }
    for (const stream of ['stdout', 'stderr'] as const) {
      child[stream].setEncoding('utf8').on('data', (text: string) => (output[stream] += text))
    }
    child.on('error', reject)
    child.on('close', (code) => resolve({ code: code ?? 255, ...output }))
    child.stdin.on('error', () => {})
    child.stdin.end(input)
  })
}
