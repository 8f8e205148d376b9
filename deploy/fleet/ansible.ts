// Starts ansible-playbook with Baton's collection, and follows the report that it writes. Must never break: overwrites none of
// the operator's own Ansible settings; puts no variable into the arguments of a process.

import { spawn } from 'node:child_process'
import { type FileHandle, open, mkdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { dirname, join } from 'node:path'
import { BatonError, reasonOf } from '../../agent/words.ts'
import { printLine } from '../lib/printer.ts'
import { findProgram, run } from '../lib/shell.ts'
import { temporaryFolder } from '../lib/trusted.ts'
import { type FleetEvent, followRun, type HostResult } from './events.ts'
import type { Variables } from './settings.ts'

export interface FleetEnd {
  /** the playbook's last event; null if it did not get that far */
  result: HostResult | null
  exitCode: number | null
  /** a signal told this process, or Ansible, to end */
  interrupted: boolean
}

const PROGRAM = 'ansible-playbook'
const OLDEST = [2, 14] as const
const POLL_MS = 100
/** from the first signal to SIGKILL */
const GRACE_MS = 15_000
/** how often Ansible is asked to end */
const AGAIN_MS = 2000
/** For Ansible, if the operator sets it neither in the environment nor in ansible.cfg: [variable, key in ansible.cfg, value]. */
const SETTINGS = [
  ['ANSIBLE_FORKS', 'forks', '200'],
  // notice a dead link within a quarter of a minute, not when TCP gives up
  ['ANSIBLE_SSH_EXTRA_ARGS', 'ssh_extra_args', '-o ServerAliveInterval=3 -o ServerAliveCountMax=3'],
  ['ANSIBLE_RETRY_FILES_ENABLED', 'retry_files_enabled', 'False'],
  ['ANSIBLE_LOCALHOST_WARNING', 'localhost_warning', 'False'],
  // a host that is listed twice in a file is a mistake; by default the last one would count
  ['ANSIBLE_DUPLICATE_YAML_DICT_KEY', 'duplicate_dict_key', 'error'],
  ['ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED', 'any_unparsed_is_failed', 'True'],
  // read group_vars and host_vars once, with the inventory, not anew for each host at each step; facts are not gathered
  ['ANSIBLE_RUN_VARS_PLUGINS', 'run_vars_plugins', 'start'],
  ['ANSIBLE_PRECEDENCE', 'precedence', 'all_inventory,groups_inventory'],
  ['ANSIBLE_INJECT_FACT_VARS', 'inject_facts_as_vars', 'False'],
] as const

const HINT =
  'install it on this machine: `apt install ansible-core`, or `pipx install ansible-core`; the hosts need nothing'

/** Path of ansible-playbook. Throws unsupported_host if there is none. */
export async function findAnsible(): Promise<string> {
  const path = await findProgram(PROGRAM)
  if (path !== null) return path
  throw new BatonError('unsupported_host', `expected ${PROGRAM} on PATH, found none`, { hint: HINT })
}

/** Throws unsupported_host if Ansible is too old. Asked only after a failed run, as it takes as long as a small run. */
export async function expectNewEnough(program: string): Promise<void> {
  const { stdout } = await run([program, '--version'], { timeoutMs: 60_000 })
  const [, major = '0', minor = '0'] = /\bcore (\d+)\.(\d+)/.exec(stdout) ?? []
  if ((Number(major) - OLDEST[0] || Number(minor) - OLDEST[1]) >= 0) return
  const got = stdout.split('\n', 1)[0] ?? ''
  throw new BatonError('unsupported_host', `expected ansible-core ${OLDEST.join('.')} or newer, got ${got}`, {
    hint: HINT,
  })
}

/** Runs the playbook to its end. `said` gets each event of the report. */
export async function runPlaybook(
  program: string,
  variables: Variables,
  { report, log, lockSeconds }: { report: string; log: string; lockSeconds: number },
  said: (event: FleetEvent) => void,
): Promise<FleetEnd> {
  const draw = safely(said)
  await using work = await temporaryFolder('baton-fleet-')
  await mkdir(join(work.path, 'ansible_collections', 'baton'), { recursive: true })
  await symlink(import.meta.dirname, join(work.path, 'ansible_collections', 'baton', 'fleet'))
  // a gate may hold a password: not in argv, and readable by nobody else
  const vars = join(work.path, 'vars.json')
  await writeFile(vars, JSON.stringify(variables), { mode: 0o600 })
  await mkdir(dirname(report), { recursive: true })
  const begin = await stat(report).then(
    ({ size }) => size,
    () => 0,
  )
  const args = ['baton.fleet.waves', '--inventory', variables.fleet_inventory, '--extra-vars', `@${vars}`]
  await using output = await openLog(log)
  const child = spawn(program, [...args, ...variables.fleet_ansible_flags], {
    env: { ...process.env, ...(await environment(work.path, report, lockSeconds)) },
    stdio: ['inherit', output.fd, output.fd],
    // a separate process group: this process passes Ctrl-C on, once
    detached: true,
  })
  const stopped = passSignals(child.pid)
  const read = followRun(report, begin)
  let result: HostResult | null = null
  let ours = false
  const take = async () => {
    for (const event of await read()) {
      // another operator's run may still be writing to the same file
      if (event.event === 'run') ours = event.options['fleet_run_id'] === variables['fleet_run_id']
      if (!ours) continue
      draw(event)
      if (event.event === 'result') result = event
    }
  }
  const end = new Promise<number | null>((resolve, reject) => {
    child.once('error', reject)
    child.once('exit', (code) => resolve(code))
  })
  let exitCode: number | null | undefined
  void end.then((code) => (exitCode = code)).catch(() => (exitCode = null))
  while (exitCode === undefined) {
    await new Promise((resolve) => setTimeout(resolve, POLL_MS))
    await take()
  }
  await end
  await take()
  return { result, exitCode, interrupted: stopped() || exitCode === 99 || exitCode === null }
}

/** Drawing must decide nothing: if it fails, hosts are moved and taken back all the same. */
function safely(said: (event: FleetEvent) => void): (event: FleetEvent) => void {
  let broken = false
  // the reader of the output may go away
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => (broken = true))
  return (event) => {
    if (broken) return
    try {
      said(event)
    } catch (cause) {
      broken = true
      printLine(`\nnote: progress can no longer be shown (${reasonOf(cause)}); the run goes on`, process.stderr)
    }
  }
}

/** Opens the log of this run and drops the one before. If operators share its folder, the group may read and write it. */
async function openLog(path: string): Promise<FileHandle> {
  await rm(path, { force: true })
  // not through a link that another user of the folder has made in between
  const file = await open(path, 'wx', 0o600)
  const [folder, own] = [await stat(dirname(path)), await file.stat()]
  if ((folder.mode & 0o020) !== 0 && folder.gid === own.gid) await file.chmod(0o660)
  return file
}

/** Environment variables for Ansible. A setting of `SETTINGS` is in it only if the operator has not given one. */
async function environment(work: string, report: string, lockSeconds: number): Promise<Record<string, string>> {
  const own = process.env
  const said = await configuration()
  const collections = own['ANSIBLE_COLLECTIONS_PATH'] ?? own['ANSIBLE_COLLECTIONS_PATHS'] ?? said('collections_paths?')
  const fallback = '~/.ansible/collections:/usr/share/ansible/collections'
  const callbacks = own['ANSIBLE_CALLBACKS_ENABLED'] ?? said('callbacks_enabled')
  const unsaid = SETTINGS.filter(([name, key]) => !own[name] && said(key) === null)
  return {
    ...Object.fromEntries(unsaid.map(([name, , value]) => [name, value])),
    ANSIBLE_NOCOLOR: '1',
    // the plugins are in this repository: Python must not write there
    PYTHONDONTWRITEBYTECODE: '1',
    ANSIBLE_COLLECTIONS_PATH: `${work}:${collections ?? fallback}`,
    ANSIBLE_CALLBACKS_ENABLED: ['baton.fleet.report', callbacks].filter(Boolean).join(','),
    BATON_FLEET_REPORT: report,
    BATON_FLEET_PARENT: String(process.pid),
    BATON_FLEET_LOCK_SECONDS: String(lockSeconds),
  }
}

/** Looks up a key in the ansible.cfg that Ansible will use, the first of these files that exists. Null if it is not set. */
async function configuration(): Promise<(key: string) => string | null> {
  const places = [
    process.env['ANSIBLE_CONFIG'],
    'ansible.cfg',
    join(homedir(), '.ansible.cfg'),
    '/etc/ansible/ansible.cfg',
  ]
  for (const place of places.filter((path) => path !== undefined)) {
    const text = await readFile(place, 'utf8').catch(() => null)
    if (text !== null) return (key) => new RegExp(`^${key}[ \\t]*[=:][ \\t]*(.*)$`, 'm').exec(text)?.[1]?.trim() ?? null
  }
  return () => null
}

/**
 * The first signal asks Ansible to end (SIGINT, said again until it has ended: Ansible loses one that comes while it starts a worker),
 * the second one kills it (SIGKILL). The result ends this, and says whether there was one.
 */
function passSignals(pid: number | undefined): () => boolean {
  let count = 0
  const group = pid === undefined ? null : -pid
  const kill = (signal: NodeJS.Signals) => {
    try {
      if (group !== null) process.kill(group, signal)
    } catch {
      // it has ended already
    }
  }
  let again: NodeJS.Timeout | undefined
  let last: NodeJS.Timeout | undefined
  const handle = () => {
    count++
    if (count > 1) return kill('SIGKILL')
    kill('SIGINT')
    again = setInterval(() => kill('SIGINT'), AGAIN_MS).unref()
    last = setTimeout(() => kill('SIGKILL'), GRACE_MS).unref()
  }
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, handle)
  return () => {
    clearInterval(again)
    clearTimeout(last)
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.off(signal, handle)
    return count > 0
  }
}
