// A PostgreSQL or a MariaDB of the distribution on a unix socket in a temporary folder, as a user that is not root. No port, no unit.
// Must hold: the server has ended and its folder is gone when the scope ends.

import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, globSync } from 'node:fs'
import { chmod, chown, mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { until } from '../fixtures/evidence.ts'

const run = promisify(execFile)

export type Kind = 'postgresql' | 'mariadb'

export interface DatabaseServer extends AsyncDisposable {
  /** what clients find it by */
  environment: Record<string, string>
  /** the folder of its socket */
  socket: string
  sql(statement: string, database?: string): Promise<string>
  /** gives the service an empty database `shop`, whatever an earlier test has left */
  anew(): Promise<void>
  /** the rules of an author of a service with the database `shop` */
  snapshot: { command: string[]; restore: string[]; check?: string[] }
  /** as a shell's words, for a program: runs the statement that follows */
  client: string[]
}

/** the programs themselves: those in /usr/bin look for clusters of the distribution */
export const POSTGRES_BIN = globSync('/usr/lib/postgresql/*/bin').toSorted().at(-1) ?? ''
const BIN = { postgresql: POSTGRES_BIN, mariadb: '/usr/sbin' }
/** nobody's, where root runs the tests: neither server runs as root */
const NOBODY = { uid: 65_534, gid: 65_534 }

/** Why there is none here; null: there is one. */
export function lacks(kind: Kind): string | null {
  const program = kind === 'postgresql' ? join(BIN.postgresql, 'postgres') : '/usr/sbin/mariadbd'
  return existsSync(program) ? null : `needs ${kind}: \`apt-get install ${kind}${kind === 'mariadb' ? '-server' : ''}\``
}

export async function databaseServer(kind: Kind): Promise<DatabaseServer> {
  const home = await mkdtemp(join(tmpdir(), `baton-${kind}-`))
  const isRoot = process.getuid?.() === 0
  const as = isRoot ? NOBODY : {}
  const data = join(home, 'data')
  await mkdir(data, { mode: 0o700 })
  for (const path of isRoot ? [home, data] : []) await chown(path, NOBODY.uid, NOBODY.gid)
  await chmod(home, 0o755) // clients are other users
  const server = kind === 'postgresql' ? await postgres(home, data, as) : await mariadb(home, data, as)
  const { child, client, environment, dump } = server
  const sql: DatabaseServer['sql'] = async (statement, database = 'shop') => {
    const [file = '', ...args] = client(database)
    return (await run(file, [...args, statement], { env: { ...process.env, ...environment } })).stdout.trim()
  }
  const end = async () => {
    child.kill('SIGTERM') // of PostgreSQL: waits for clients, which the tests have ended
    const late = setTimeout(() => child.kill('SIGKILL'), 10_000)
    if (child.exitCode === null && child.signalCode === null) await once(child, 'exit')
    clearTimeout(late)
    await rm(home, { recursive: true, force: true })
  }
  const first = kind === 'postgresql' ? 'postgres' : 'mysql'
  const anew = async () => {
    await sql(`DROP DATABASE IF EXISTS shop${kind === 'postgresql' ? ' WITH (FORCE)' : ''}`, first)
    await sql('CREATE DATABASE shop', first)
  }
  try {
    await until(
      'the server',
      async () =>
        await sql('SELECT 1', first).then(
          () => true,
          () => false,
        ),
      30_000,
    )
    await anew()
  } catch (cause) {
    await end()
    throw cause
  }
  return { environment, socket: home, sql, anew, snapshot: dump, client: client('shop'), [Symbol.asyncDispose]: end }
}

interface Begun {
  child: ChildProcess
  environment: Record<string, string>
  /** what runs a statement in this database */
  client: (database: string) => string[]
  dump: DatabaseServer['snapshot']
}

async function postgres(home: string, data: string, as: object): Promise<Begun> {
  const [bin, quiet] = [BIN.postgresql, { ...as, cwd: home }]
  await run(join(bin, 'initdb'), ['-D', data, '-U', 'keeper', '-A', 'trust', '--no-sync'], quiet)
  const words = ['-D', data, '-k', home, '-c', 'listen_addresses=', '-c', 'fsync=off']
  const child = spawn(join(bin, 'postgres'), words, { ...quiet, stdio: 'ignore' })
  return {
    child,
    environment: { PGHOST: home, PGUSER: 'keeper' },
    client: (database) => ['/usr/bin/psql', '-h', home, '-U', 'keeper', '-d', database, '-qAtX', '-c'],
    dump: {
      command: ['pg_dump', '--format=custom', '--file={file}', 'shop'],
      restore: ['pg_restore', '--clean', '--if-exists', '--single-transaction', '--dbname=shop', '{file}'],
      check: ['pg_restore', '--list', '{file}'],
    },
  }
}

async function mariadb(home: string, data: string, as: object): Promise<Begun> {
  const own = { ...as, cwd: home, env: { ...process.env, TMPDIR: home } } // it runs as another user, who may not write ours
  await run(
    'mariadb-install-db',
    ['--no-defaults', `--datadir=${data}`, '--auth-root-authentication-method=normal', '--skip-test-db'],
    own,
  )
  const socket = join(home, 'socket')
  const words = [
    '--no-defaults',
    `--datadir=${data}`,
    `--socket=${socket}`,
    '--skip-networking',
    `--pid-file=${join(home, 'pid')}`,
  ]
  const child = spawn(join(BIN.mariadb, 'mariadbd'), words, { ...own, stdio: 'ignore' })
  return {
    child,
    environment: {},
    client: (database) => [
      '/usr/bin/mariadb',
      '--no-defaults',
      `--socket=${socket}`,
      '-uroot',
      '-N',
      '-B',
      '-D',
      database,
      '-e',
    ],
    dump: {
      command: [
        'mariadb-dump',
        `--socket=${socket}`,
        '--user=root',
        '--single-transaction',
        '--result-file={file}',
        'shop',
      ],
      restore: ['mariadb', `--socket=${socket}`, '--user=root', '--database=shop', '--execute=source {file}'],
    },
  }
}
