// What an author (`snapshot` in `baton.config.json`) or an operator (`update.snapshot`) says about data that are not in SQLite: the commands
// that copy a database server's, and folders that are copied as a set. Types, the table and the faults that no table says. Pure.

import { type Duration, msOf } from './duration.ts'
import { BatonError } from './errors.ts'
import { type Faults, formatUnknown, keep, type Setting } from './table.ts'
import { quoted } from './untrusted.ts'

export const SNAPSHOT_TIMES = ['before', 'stopped'] as const

export interface SnapshotRules {
  /** a program and its arguments, without a shell; it writes the copy to `{file}` */
  command?: string[]
  /** puts the data of `{file}` in the place of those that are there */
  restore?: string[]
  /** fails if `{file}` is no whole copy */
  check?: string[]
  /** folders below the state directory that are copied as a set */
  folders?: string[]
  /** `stopped`: in the moment in which no process of the application lives */
  when?: (typeof SNAPSHOT_TIMES)[number]
  /** of each command, and of copying the folders */
  timeout?: Duration
}

/** What is said of both, and complete. Plain data: it is kept on the disk until the moment has come. */
export interface SnapshotPlan {
  command: string[] | null
  restore: string[] | null
  check: string[] | null
  folders: string[]
  when: (typeof SNAPSHOT_TIMES)[number]
  timeoutMs: number
}

/** The first part of a copy's name, where the copy of a database has the database's name. */
export const DUMP = 'dump' as const
export const FOLDERS = 'folders' as const

const [TIME_LOWEST_MS, TIME_HIGHEST_MS, USUAL_MS] = [1000, 86_400_000, 600_000]

const command = (description: string): Setting => ({
  type: 'array',
  items: { type: 'string', maxLength: 4096 },
  minItems: 1,
  maxItems: 64,
  description,
})

export const SNAPSHOT = {
  type: 'object',
  properties: {
    command: command('a command (no shell) that writes a copy of the data to `{file}`'),
    restore: command('a command that replaces the data with the copy in `{file}`; `state restore` runs it'),
    check: command('a command that exits non-zero unless `{file}` is a complete copy'),
    folders: {
      type: 'array',
      items: { type: 'string', maxLength: 1024 },
      maxItems: 16,
      description: 'folders below the state directory to include in snapshots',
    },
    when: {
      type: 'string',
      enum: SNAPSHOT_TIMES,
      default: 'before',
      description: '`before`: before the switch; `stopped`: while no application process is running, so clients wait',
    },
    timeout: {
      type: 'string',
      timeMs: [TIME_LOWEST_MS, TIME_HIGHEST_MS],
      default: '10m',
      description: 'time limit for each command and for copying the folders',
    },
  },
} as const satisfies Setting

/** A scratch database of the operator's: a trial restores the copy there, and the releases are given its address. */
export interface Scratch {
  restore: string[]
  environment: Record<string, string>
}

export const SCRATCH = {
  type: 'object',
  properties: {
    restore: command('a command that loads `{file}` into the scratch database'),
    environment: {
      type: 'object',
      additionalProperties: { type: 'string', maxLength: 4096 },
      propertyNames: { pattern: '^(?!BATON_)[A-Za-z_][A-Za-z0-9_]*$', form: 'variable names other than BATON_*' },
      description:
        'environment variables for `restore` and the release being tried, such as `{"DATABASE_URL": "postgres:///scratch"}`',
    },
  },
  required: ['restore', 'environment'],
} as const satisfies Setting

/** Null: neither says anything. Members of the operator's count more. Throws invalid_settings. */
export function planOf(author: SnapshotRules | null, operator: unknown): SnapshotPlan | null {
  const own =
    operator === undefined || operator === null ? {} : read<SnapshotRules>(SNAPSHOT, operator, 'update.snapshot')
  const rules = { ...author, ...own }
  refuse(snapshotFaults(rules))
  const { command: copy = null, restore = null, check = null, folders = [], when = 'before', timeout } = rules
  if (copy === null && folders.length === 0) return null
  return { command: copy, restore, check, folders, when, timeoutMs: timeout === undefined ? USUAL_MS : msOf(timeout) }
}

/** Null: the operator names none. Throws invalid_settings. */
export function scratchOf(operator: unknown): Scratch | null {
  if (operator === undefined || operator === null) return null
  const scratch = read<Scratch>(SCRATCH, operator, 'update.scratch')
  refuse(commandFaults('update.scratch.restore', scratch.restore))
  return scratch
}

function read<T>(table: Setting, value: unknown, name: string): T {
  const { faults, unknown }: Faults = { faults: [], unknown: [] }
  const kept = keep(table, value, name, { faults, unknown })
  refuse([...faults, ...unknown.map(formatUnknown)])
  return kept as T
}

function refuse(faults: readonly string[]): void {
  if (faults.length > 0) throw new BatonError('invalid_settings', faults.join('; '))
}

/** What no table says; a sentence each. */
export function snapshotFaults({ command: copy, restore, check, folders = [] }: SnapshotRules): string[] {
  const faults = Object.entries({ command: copy, restore, check }).flatMap(([name, words]) =>
    commandFaults(`snapshot.${name}`, words),
  )
  if ((copy === undefined) !== (restore === undefined))
    faults.push('expected both `command` and `restore` in `snapshot`: a copy is useless if it cannot be restored')
  for (const folder of folders) {
    const [first, ...rest] = folder.split('/').filter((part) => part !== '' && part !== '.')
    const isBelow = first !== undefined && !/^\/|\0/.test(folder) && ![first, ...rest].includes('..')
    if (!isBelow || first === 'update')
      faults.push(
        `expected folders below the state directory, other than \`update\`, in \`snapshot.folders\`, got ${quoted(folder)}`,
      )
  }
  return faults
}

/** Every user of a host can read the arguments of a process. */
const SECRET = /:\/\/[^/@\s:]*:[^/@\s]+@|^--?pass(word|wd)?=.|^[A-Z_]*(PASSWORD|PWD|TOKEN)=/i

function commandFaults(name: string, words: readonly string[] | undefined): string[] {
  if (words === undefined) return []
  const [program = '', ...given] = words
  const checks: [boolean, string][] = [
    [
      !/^(\/[^\0]*)?[^/\0]+$/.test(program),
      `the absolute path or the plain name of a program in \`${name}\`, got ${quoted(program)}`,
    ],
    [given.some((word) => word.includes('\0')), `text without NUL in \`${name}\``],
    [!given.some((word) => word.includes('{file}')), `an argument with {file}, the path of the copy, in \`${name}\``],
    [
      words.some((word) => SECRET.test(word)),
      `no password in \`${name}\`, because every user on the host can see a program’s arguments: use the environment file of the systemd unit`,
    ],
  ]
  return checks.flatMap(([isFault, expected]) => (isFault ? [`expected ${expected}`] : []))
}
