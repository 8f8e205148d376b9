// Carries out the steps of a plan, one function a step. Until `start` a failure takes back what was done before it, so
// that an install that cannot be completed leaves the host as it was.
// Must never break: no step is carried out that the plan does not show.

import { randomBytes } from 'node:crypto'
import {
  chmod,
  chown,
  copyFile,
  lstat,
  mkdir,
  open,
  readFile,
  rename,
  rm,
  rmdir,
  symlink,
  readdir,
} from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { type Lock, makeDisk, receiptPath, takeLock, writeReceipt } from '../../../agent/install.ts'
import { asBatonError, BatonError, reasonOf } from '../../../agent/words.ts'
import { asUser, findId, type Identity, idOf, isRoot } from '../place/identity.ts'
import { describe, type Step } from './plan.ts'
import { findProgram, run } from '../../lib/shell.ts'

export interface Carrier {
  who: string
  /** called before each step with what it is */
  say(step: Step): void
  start(): Promise<void>
  stop(): Promise<void>
  update(to: string | null): Promise<void>
  rollback(): Promise<void>
  waitHealthy(tag: string): Promise<void>
}

type Undo = () => Promise<void>

/** from here on nothing is taken back: what happened is for a person to look at */
const POINT_OF_NO_RETURN: readonly Step['do'][] = [
  'start',
  'stop',
  'update',
  'rollback',
  'wait-healthy',
  'remove',
  'purge',
]

export async function carryOut(steps: readonly Step[], carrier: Carrier): Promise<void> {
  const undo: Undo[] = []
  const locks: Lock[] = []
  let final = false
  try {
    for (const step of steps) {
      final ||= POINT_OF_NO_RETURN.includes(step.do)
      // the service takes the lock itself when it is asked, and while it starts
      if (['start', 'update', 'rollback'].includes(step.do)) await releaseAll(locks)
      carrier.say(step)
      undo.push(await carryOutOne(step, carrier, locks))
    }
  } catch (cause) {
    await releaseAll(locks)
    if (!final) {
      for (const back of undo.toReversed()) await back().catch(() => {})
    }
    throw cause
  } finally {
    await releaseAll(locks)
  }
}

async function carryOutOne(step: Step, carrier: Carrier, locks: Lock[]): Promise<Undo> {
  try {
    switch (step.do) {
      case 'create-user':
        return await createUser(step.user, step.home)
      case 'make-directory':
        return await makeDirectory(step)
      case 'lock': {
        const holder = await ownerOf(step.path)
        locks.push(await asUser(holder, () => takeLock(makeDisk(), step.path, carrier.who)))
        return nothing
      }
      case 'write-config': {
        const dashboard = { password: randomBytes(24).toString('base64url') }
        await writeAs(step.owner, step.path, `${JSON.stringify({ dashboard, ...step.config }, null, 2)}\n`, 0o600)
        return () => rm(step.path, { force: true })
      }
      case 'place-executable':
        return await placeExecutable(step)
      case 'write-receipt': {
        const before = await readFile(step.path, 'utf8').catch(() => null)
        await inDirectoryOf(step.path, () => writeReceipt(makeDisk(), step.receipt))
        const path = receiptPath(step.receipt.executable)
        return () => (before === null ? rm(path, { force: true }) : writeAs(step.owner, path, before, 0o644))
      }
      case 'write-file': {
        const before = await readFile(step.path, 'utf8').catch(() => null)
        await mkdir(dirname(step.path), { recursive: true })
        await writeAs(null, step.path, step.content, 0o644)
        return () => (before === null ? rm(step.path, { force: true }) : writeAs(null, step.path, before, 0o644))
      }
      case 'link':
        return await link(step.path, step.target)
      case 'remove':
        await rm(step.path, { force: true })
        return nothing
      case 'remove-directory':
        await rmdir(step.path).catch((error: NodeJS.ErrnoException) => {
          // not empty, a mount, or in a place that is not ours to change: it stays
          if (!['ENOENT', 'ENOTEMPTY', 'EEXIST', 'EACCES', 'EPERM', 'EBUSY', 'EROFS'].includes(error.code ?? ''))
            throw error
        })
        return nothing
      case 'purge':
        await releaseAll(locks)
        await rm(step.path, { recursive: true, force: true })
        return nothing
      case 'remove-user':
        await run(['userdel', step.user], { allowFailure: true })
        return nothing
      case 'run':
        await run(step.command, { timeoutMs: 60_000 })
        return step.command.includes('enable')
          ? () => run(step.command.map((word) => (word === 'enable' ? 'disable' : word))).then(nothing)
          : nothing
      case 'start':
        await carrier.start()
        return nothing
      case 'stop':
        await carrier.stop()
        return nothing
      case 'update':
        await carrier.update(step.to)
        return nothing
      case 'rollback':
        await carrier.rollback()
        return nothing
      case 'wait-healthy':
        await carrier.waitHealthy(step.tag)
        return nothing
      default:
        return step satisfies never
    }
  } catch (cause) {
    throw withDoing(cause, step)
  }
}

/** A full or read-only disk and missing rights are refusals: nothing has changed. */
function withDoing(cause: unknown, step: Step): BatonError {
  const code = cause instanceof Error && 'code' in cause ? String(cause.code) : ''
  const doing = describe(step)
  if (['ENOSPC', 'EDQUOT', 'EROFS', 'EACCES', 'EPERM'].includes(code)) {
    return new BatonError('refused', `${doing}: ${reasonOf(cause)}`, { cause })
  }
  return asBatonError(cause, 'unexpected', doing)
}

async function createUser(user: string, home: string): Promise<Undo> {
  if ((await findId(user)) !== null) return nothing
  if ((await findProgram('useradd')) !== null) {
    await run([
      'useradd',
      '--system',
      '--user-group',
      '--home-dir',
      home,
      '--no-create-home',
      '--shell',
      '/usr/sbin/nologin',
      user,
    ])
  } else if ((await findProgram('adduser')) !== null) {
    await run(['addgroup', '-S', user], { allowFailure: true })
    await run(['adduser', '-S', '-D', '-H', '-h', home, '-s', '/sbin/nologin', '-G', user, user])
  } else {
    throw new BatonError('unsupported_host', 'expected `useradd` or `adduser`, found neither', {
      hint: 'create the user by hand and name it with `--run-as`',
    })
  }
  return async () => {
    await run([(await findProgram('userdel')) === null ? 'deluser' : 'userdel', user], { allowFailure: true })
  }
}

async function makeDirectory({ path, mode, owner, group }: Extract<Step, { do: 'make-directory' }>): Promise<Undo> {
  const first = await mkdir(path, { recursive: true, mode })
  const found = await lstat(path)
  if (!found.isDirectory()) throw new BatonError('refused', `expected a directory at ${path}, found another file`)
  if (owner !== null) {
    const { uid } = await idOf(owner)
    const { gid } = await idOf(group ?? owner)
    // what is there already may belong to nobody but the service or root: taking over a third person's would be a theft
    if (first === undefined && found.uid !== uid && found.uid !== 0) {
      throw new BatonError('refused', `expected ${path} to belong to ${owner}, it belongs to user id ${found.uid}`)
    }
    if (first === undefined && found.uid === 0 && found.uid !== uid) await giveEmpty(path)
    await chown(path, uid, gid)
  }
  if (first !== undefined) await chmod(path, mode)
  return first === undefined ? nothing : () => rm(first, { recursive: true, force: true })
}

/** A directory of root's may be given away while there is nothing in it that could be somebody's. */
async function giveEmpty(path: string): Promise<void> {
  if ((await readdir(path)).length === 0) return
  throw new BatonError('refused', `expected ${path} to be empty or the service's own, found root's files in it`, {
    hint: `give it to the service's user with chown -R, or choose another place`,
  })
}

async function placeExecutable({ from, path, owner }: Extract<Step, { do: 'place-executable' }>): Promise<Undo> {
  const temporary = join(dirname(path), `.${basename(path)}.partial`)
  await rm(temporary, { force: true })
  try {
    await copyFile(from, temporary)
    const file = await open(temporary, 'r+')
    try {
      if (owner !== null) {
        const { uid, gid } = await idOf(owner)
        await file.chown(uid, gid)
      }
      await file.chmod(0o755)
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(temporary, path)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
  await makeDisk().flushDirectory(dirname(path))
  return () => rm(path, { force: true })
}

async function link(path: string, target: string): Promise<Undo> {
  await mkdir(dirname(path), { recursive: true })
  const temporary = `${path}.new`
  await rm(temporary, { force: true })
  await symlink(target, temporary)
  await rename(temporary, path)
  return () => rm(path, { force: true })
}

/** All or nothing, with the rights of `owner` where that is not us. */
async function writeAs(owner: string | Identity | null, path: string, text: string, mode: number): Promise<void> {
  const temporary = join(dirname(path), `.${basename(path)}.${randomBytes(6).toString('hex')}.tmp`)
  const file = await open(temporary, 'wx', mode)
  try {
    await file.writeFile(text)
    const { uid, gid }: Partial<Identity> =
      owner === null || !isRoot() ? {} : typeof owner === 'string' ? await idOf(owner) : owner
    if (uid !== undefined && gid !== undefined) await file.chown(uid, gid)
    await file.chmod(mode)
    await file.sync()
  } finally {
    await file.close()
  }
  await rename(temporary, path)
}

async function inDirectoryOf<T>(path: string, work: () => Promise<T>): Promise<T> {
  return await asUser(await ownerOf(dirname(path)), work)
}

async function ownerOf(path: string): Promise<Identity> {
  const { uid, gid } = await lstat(path)
  return { uid, gid }
}

async function releaseAll(locks: Lock[]): Promise<void> {
  for (const lock of locks.splice(0)) await lock.release().catch(() => {})
}

async function nothing(): Promise<void> {}
