// The first code of every release: looks at the first argument and loads only what that needs.
// Must never break: `--version` answers before anything else is read. An operator's command runs only the kit's code, and never
// loads or unpacks the application. Every other argument reaches the application untouched.

import { spawnSync } from 'node:child_process'
import { createRequire, syncBuiltinESMExports } from 'node:module'
import {
  allowLongStart,
  BEFORE,
  COMMAND,
  doAsOrdered,
  endWithParent,
  INHERITANCE,
  hearProgress,
  isHolder,
  keepLastWords,
  leaveLastWords,
  letGoUnlessServing,
  mostMsOf,
  msOf,
  noteRelease,
  noteStart,
  ownContainerId,
  ownState,
  ownWords,
  readOwed,
  waitAtGate,
  WORD,
} from '../../../agent/first.ts'
import { type FileRunner, runBefore } from './before.ts'
import { waitForOldContainer } from './old-container.ts'
import { belongsToInstall, refuseBeside, startsService } from './beside.ts'
import { configurationIn, filled, type Fillings, fillingsOf, setEnvironment } from './configuration.ts'
import { EXIT_USAGE, type OwnWords, refuse } from './release.ts'
import { commandIn, misplacedIn } from './command.ts'

export interface Beginning {
  release: OwnWords
  /** path of the release's own file */
  executable: string
  /** text of a CommonJS module that exports `runOperator(argv)` */
  operator: () => string
  /** unpacks, if there is something to unpack; returns what it did, as a line for a person */
  prepare: () => string
  /** starts the application with `own` as its arguments */
  application: (own: readonly string[]) => void
  /** how a file of the application is run; absent: it has none */
  program?: () => FileRunner
}

/** Arguments that a person cannot type as a command: the operator's text holds the sockets, downloads, or runs a word of the application's. */
const [HOLD, INSTALLED_WORD, OWED, FETCH] = ['(hold)', '(word)', '(owed)', '(fetch)']
/** In the environment of a process that a start waits for: the state directory in which something is owed. */
const PAYS = 'BATON_PAYS'

export function beginRelease(beginning: Beginning): void {
  const { release, executable, operator, prepare } = beginning
  const argv = process.argv.slice(2)
  const isSaid = process.env[COMMAND] === '1'
  delete process.env[COMMAND] // it is about this process only: the application and its children must not see it
  noteRelease(release)
  const [first = ''] = argv
  const command = commandIn(argv, release, isSaid)
  if (first === '--version') {
    if (process.env['BATON_PREPARE'] === '1') prepare()
    process.stdout.write(`${release.service} ${release.tag}\n`)
    void doAsOrdered(
      () => release.rehearse,
      () => runOperator(operator(), [FETCH]),
    )
  } else if (first === '--prepare') {
    process.stdout.write(`${prepare()}\n`)
  } else if (command !== null) {
    noteStart({ argv: command, executable, isChild: false, directory: null, configuration: null })
    runOperator(operator(), command)
  } else {
    const meant = misplacedIn(argv, release, isSaid)
    if (meant !== null) refuseMisplaced(release, argv, meant)
    start(beginning, argv)
  }
}

/**
 * Gives `parseArgs` of node:util the arguments that it would see under `node app.js`. A script starts with `node -e`, and then
 * `parseArgs` takes the first word after Node itself for an argument of the application: it looks at the flag `-e`, not at
 * `process.execArgv`.
 */
function tellParseArgs(): void {
  const util = process.getBuiltinModule('node:util')
  const { parseArgs } = util
  const told: typeof parseArgs = (config) =>
    parseArgs({ ...config, args: config?.args ?? process.argv.slice(2) } as typeof config & object)
  Object.assign(util, { parseArgs: told })
  syncBuiltinESMExports()
}

function start({ release, executable, operator, prepare, application, program }: Beginning, argv: string[]) {
  if (process.env[BEFORE] !== undefined) belongsToStart()
  if (isHolder()) {
    noteStart({ argv, executable, isChild: false, directory: process.cwd(), configuration: null })
    return runOperator(operator(), [HOLD])
  }
  const pays = process.env[PAYS]
  if (pays !== undefined) {
    noteStart({ argv, executable, isChild: false, directory: null, configuration: null })
    return runOperator(operator(), [OWED, pays])
  }
  const word = process.env[WORD] ?? null
  delete process.env[WORD]
  const path = word ?? configurationOf(release, argv)
  const typed = argv[0] === '--' ? argv.slice(1) : argv
  if (path === null && belongsToInstall(typed, release, executable)) {
    noteStart({ argv, executable, isChild: false, directory: null, configuration: null })
    return runOperator(operator(), [INSTALLED_WORD, ...argv])
  }
  if (path === null && startsService(argv, release.args)) refuseBeside(release, executable)
  keepLastWords(process.env[INHERITANCE], hearProgress)
  letGoUnlessServing() // `before` too may look whether the port is free
  const configuration = path === null ? null : configurationIn(path)
  const values = configuration === null ? null : fillingsOf(configuration, path ?? '')
  noteStart({
    argv,
    executable,
    isChild: false,
    directory: process.cwd(),
    configuration: word === null ? configuration : null,
    ...(word === null || values === null ? {} : { word: wordAt(typed[0] ?? '', values) }),
  })
  const isFirst = process.env[INHERITANCE] === undefined // the manager does not wait for a successor
  if (isFirst && word === null) allowLongStart(msOf(configuration?.update?.readyTimeout ?? '0'))
  if (isFirst && values !== null) leaveLastWords(values['stateDirectory'] ?? '', release.tag, hearProgress)
  if (values !== null) setEnvironment(release, values)
  const own = values === null ? typed : [...release.args.map((text) => filled(text, values)), ...argv.slice(3)]
  if (process.execArgv.includes('-e')) tellParseArgs()
  if (word !== null) return application(typed)
  if (!isFirst) prepare() // nothing is left to unpack when the gate opens
  waitForOldContainer(release, prepare)
  const isAlone = waitAtGate(release)
  if (isAlone && values !== null) payOwed(release, executable, values['stateDirectory'] ?? '')
  if (isAlone && values !== null) takeOwnState(release, values['stateDirectory'] ?? '')
  const { before = [] } = release
  const isService = values !== null || (path === null && startsService(argv, release.args))
  if (!isService || before.length === 0 || program === undefined) application(own)
  else {
    const commands = before.map((words) => words.map((text) => filled(text, values ?? {})))
    runBefore(commands, program(), () => application(own))
  }
}

/** `port` 0: the service listens at a path only. */
function wordAt(typed: string, { port, path = '' }: Fillings) {
  return { typed, port: path === '' ? Number(port) : 0, path }
}

/** This process is a command of `before`: a start that is given up must not leave a migration behind that goes on. */
function belongsToStart(): void {
  const parent = Number(process.env[BEFORE])
  delete process.env[BEFORE]
  endWithParent()
  if (process.ppid !== parent) process.exit(1) // it has ended before this process asked for that
}

/** Started, it would be the service a second time, beside the one that the operator asks about. */
function refuseMisplaced({ service }: OwnWords, argv: readonly string[], meant: readonly string[]): never {
  const got = JSON.stringify(argv[0])
  const typed = [service, ...meant].join(' ')
  const passed = [service, '--', ...argv].join(' ')
  refuse(
    `expected a command as the first argument, got ${got}`,
    `use \`${typed}\`; to start the application with these arguments, use \`${passed}\``,
    EXIT_USAGE,
  )
}

/** What a killed process owes is done now, or this release does not begin. */
function payOwed({ tag }: OwnWords, executable: string, stateDirectory: string): void {
  const owed = stateDirectory === '' ? null : readOwed(stateDirectory, ownContainerId)
  if (owed === null || (owed.owes === 'snapshot' && owed.from === tag)) return
  if (owed.plan !== undefined) {
    allowLongStart(mostMsOf(owed.owes, owed.plan))
    const env = { ...process.env, [PAYS]: stateDirectory }
    const { status } = spawnSync(executable, [], { env, stdio: ['ignore', 'inherit', 'inherit'] })
    if (status === 0) return
  }
  if (owed.owes === 'snapshot')
    refuse(`${tag} will not start without a snapshot of ${owed.from}’s data`, 'the data has not changed')
  const other = owed.aside === null ? '' : `; the previous data is in ${owed.aside}`
  const again =
    owed.plan === undefined
      ? `run \`${ownWords(`state restore ${owed.name}`)}\` to finish it`
      : 'the next start will try again'
  refuse(`the restore of ${owed.name} did not finish${other}`, again)
}

/** Before the application opens its database: gives this release its own data, if an operation has left another's there. */
function takeOwnState({ tag }: OwnWords, stateDirectory: string): void {
  try {
    const moved = stateDirectory === '' ? null : ownState(stateDirectory, tag, undefined, ownContainerId)
    if (moved !== null)
      process.stderr.write(
        `baton: ${tag} uses the data restored from ${moved.restored}; the previous data is in ${moved.aside}\n`,
      )
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause)
    refuse(
      `restoring the data of ${tag} in ${stateDirectory}: ${why}`,
      'nothing was removed; the next start will try again',
    )
  }
}

/** Takes only the exact arguments of the systemd unit, the supervisor and the image. Any other `serve` is the application's. */
function configurationOf({ service }: OwnWords, [word, flag, path]: string[]): string | null {
  if (word !== 'serve') return null
  if (flag === '--config' && path !== undefined) return path
  const variable = `${service.toUpperCase().replaceAll(/[^A-Z0-9]/g, '_')}_CONFIG`
  const isImage = flag === undefined && process.env['BATON_CONTAINER'] === '1'
  return isImage ? (process.env[variable] ?? null) : null
}

/** Compiles the operator's text only now, so that a process that serves never reads it. */
function runOperator(text: string, argv: string[]): void {
  const { compileFunction } = process.getBuiltinModule('node:vm')
  const require = createRequire(process.execPath)
  const inner = { exports: {} as { runOperator: (argv: string[]) => Promise<number> } }
  const names = ['exports', 'require', 'module', '__filename', '__dirname']
  const script = compileFunction(text, names, { filename: 'operator.cjs' })
  Reflect.apply(script, inner.exports, [inner.exports, require, inner, process.execPath, '/'])
  void inner.exports.runOperator(argv).then((exitCode) => void (process.exitCode = exitCode))
}
