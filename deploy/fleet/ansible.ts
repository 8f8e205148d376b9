// Starts ansible-playbook with Baton's collection. Must never break: overwrites none of the operator's own Ansible settings but what
// is written to stdout; puts no variable into the arguments of a process.

import { spawn } from 'node:child_process'
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { homedir } from 'node:os'
import { dirname, join } from 'node:path'
import { BatonError } from '../../agent/words.ts'
import { findProgram, run } from '../lib/shell.ts'
import { END_SIGNALS, onSignals } from '../lib/signals.ts'
import { temporaryFolder } from '../lib/trusted.ts'
import type { Variables } from './settings.ts'

/** How a run ended, in the callback's words. */
export interface FleetEnd {
  exit: number
  why: string | null
  hint: string | null
  /** lines about the hosts that a person has to look at, the worst last */
  look: string[]
}

const PROGRAM = 'ansible-playbook'
const OLDEST = [2, 14] as const
/** from the first signal to SIGKILL */
const GRACE_MS = 15_000
/** how often Ansible is asked to end */
const AGAIN_MS = 2000
/** For Ansible, if the operator sets it neither in the environment nor in ansible.cfg: [variable, key in ansible.cfg, value]. */
const SETTINGS = [
  ['ANSIBLE_FORKS', 'forks', '200'],
  // notice a dead link within a quarter of a minute, not when TCP gives up
  ['ANSIBLE_SSH_EXTRA_ARGS', 'ssh_extra_args', '-o ServerAliveInterval=3 -o ServerAliveCountMax=3'],
  ['ANSIBLE_RETRY_FILES_ENABLED', 'retry_files_enabled', 'True'],
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
  'install it on this machine: `apt install ansible-core`, or `pipx install ansible-core`; nothing needs to be installed on the hosts'

/** Path of ansible-playbook. Throws unsupported_host if there is none. */
export async function findAnsible(): Promise<string> {
  const path = await findProgram(PROGRAM)
  if (path !== null) return path
  throw new BatonError('unsupported_host', `${PROGRAM} was not found on PATH`, { hint: HINT })
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

/**
 * Runs the playbook of the folder with Baton's collection. Its output goes to this process's own. The end is null if Ansible did not get that far: `interrupted`, or with
 * an exit code of its own.
 */
export async function runPlaybook(
  program: string,
  variables: Variables,
  flags: readonly string[],
  {
    collection,
    report,
    show,
    lockSeconds,
  }: { collection: string; report: string; show: 'lines' | 'json' | 'nothing'; lockSeconds: number },
): Promise<{ end: FleetEnd | null; exitCode: number | null; interrupted: boolean }> {
  await using work = await temporaryFolder('baton-fleet-')
  await mkdir(join(work.path, 'ansible_collections', 'baton'), { recursive: true })
  await symlink(collection, join(work.path, 'ansible_collections', 'baton', 'fleet'))
  // a gate may hold a password: not in argv, and readable by nobody else
  const vars = join(work.path, 'vars.json')
  await writeFile(vars, JSON.stringify(variables), { mode: 0o600 })
  await mkdir(dirname(report), { recursive: true })
  const end = join(work.path, 'end.json')
  const child = spawn(program, [join(collection, 'playbooks/waves.yml'), '--extra-vars', `@${vars}`, ...flags], {
    env: {
      ...process.env,
      ...(await environment(work.path, report)),
      BATON_FLEET_REPORT: report,
      BATON_FLEET_SHOW: show,
      BATON_FLEET_SCREEN: '3',
      BATON_FLEET_END: end,
      BATON_FLEET_PARENT: String(process.pid),
      BATON_FLEET_LOCK_SECONDS: String(lockSeconds),
    },
    // programs read stdout: what Ansible says of its own goes elsewhere then
    stdio: ['inherit', { lines: 1, json: 2, nothing: 'ignore' as const }[show], 2, 1],
    // a separate process group: this process passes Ctrl-C on, once
    detached: true,
  })
  const stopped = passSignals(child.pid)
  const exitCode = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject)
    child.once('exit', (code) => resolve(code))
  })
  const text = await readFile(end, 'utf8').catch(() => null)
  return {
    end: text === null ? null : (JSON.parse(text) as FleetEnd),
    exitCode,
    interrupted: stopped() || exitCode === 99 || exitCode === null,
  }
}

/** Environment variables for Ansible. A setting of `SETTINGS` is in it only if the operator has not given one. */
async function environment(work: string, report: string): Promise<Record<string, string>> {
  const own = process.env
  const said = await configuration()
  const collections = own['ANSIBLE_COLLECTIONS_PATH'] ?? own['ANSIBLE_COLLECTIONS_PATHS'] ?? said('collections_paths?')
  const fallback = '~/.ansible/collections:/usr/share/ansible/collections'
  const unsaid = SETTINGS.filter(([name, key]) => !own[name] && said(key) === null)
  return {
    ...Object.fromEntries(unsaid.map(([name, , value]) => [name, value])),
    ANSIBLE_NOCOLOR: '1',
    // the plugins are in this repository: Python must not write there
    PYTHONDONTWRITEBYTECODE: '1',
    ANSIBLE_COLLECTIONS_PATH: `${work}:${collections ?? fallback}`,
    ANSIBLE_STDOUT_CALLBACK: 'baton.fleet.report',
    // the playbook's own name would put it among the plugins: beside the report, for `--limit @FILE`
    ANSIBLE_RETRY_FILES_SAVE_PATH:
      own['ANSIBLE_RETRY_FILES_SAVE_PATH'] ?? said('retry_files_save_path') ?? dirname(report),
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
  const heeds = onSignals(END_SIGNALS, handle)
  return () => {
    clearInterval(again)
    clearTimeout(last)
    heeds[Symbol.dispose]()
    return count > 0
  }
}
