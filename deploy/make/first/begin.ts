// The first code of every release: looks at the first word and loads only what it asks for.
// Must never break: `--version` answers before anything else is read; an operator's word runs our code only, and never loads
// or unpacks the application; every other word reaches the application untouched.

import { createRequire, syncBuiltinESMExports } from 'node:module'
import { doAsOrdered, keepLastWords, noteRelease, noteStart } from '../../../agent/first.ts'
import { applyConfiguration, readConfiguration } from './configuration.ts'
import type { OwnWords } from './release.ts'

export interface Beginning {
  release: OwnWords
  /** path of the file that a release is */
  executable: string
  /** a CommonJS text that exports `runOperator(argv)` */
  operator: () => string
  /** unpacks, where there is something to unpack; resolves to what it did */
  prepare: () => string
  /** starts the application with its own arguments */
  application: (own: readonly string[]) => void
}

/** Claimed where they are exactly the first word. `--` in front gives the application any word. */
export const OPERATOR_WORDS: readonly string[] = [
  'install',
  'upgrade',
  'rollback',
  'status',
  'uninstall',
  'doctor',
  'start',
  'stop',
  'rescue',
  'healthcheck',
  'backup',
  'deploy',
  'cancel',
  'check',
  'help',
  'as-service', // what root starts as the service's user
]

export function beginRelease({ release, executable, operator, prepare, application }: Beginning): void {
  const argv = process.argv.slice(2)
  noteRelease(release)
  const [first = ''] = argv
  if (first === '--version') {
    if (process.env['BATON_PREPARE'] === '1') prepare()
    process.stdout.write(`${release.service} ${release.tag}\n`)
    void doAsOrdered()
  } else if (first === '--prepare') {
    process.stdout.write(`${prepare()}\n`)
  } else if (OPERATOR_WORDS.includes(first)) {
    noteStart({ argv, executable, isChild: false, directory: null, configuration: null })
    runOperator(operator(), argv)
  } else {
    start({ release, executable, argv, application })
  }
}

/**
 * A script is begun with `node -e`, and `parseArgs` of node:util then takes the first word after Node itself for the application's:
 * it asks for the flag, not for `process.execArgv`. It gets what it would get from `node app.js`.
 */
function tellParseArgs(): void {
  const util = process.getBuiltinModule('node:util')
  const { parseArgs } = util
  const told: typeof parseArgs = (config) =>
    parseArgs({ ...config, args: config?.args ?? process.argv.slice(2) } as typeof config & object)
  Object.assign(util, { parseArgs: told })
  syncBuiltinESMExports()
}

function start({
  release,
  executable,
  argv,
  application,
}: Pick<Beginning, 'release' | 'executable' | 'application'> & { argv: string[] }) {
  keepLastWords()
  const path = configurationOf(release, argv)
  const configuration = path === null ? null : readConfiguration(path)
  noteStart({ argv, executable, isChild: false, directory: process.cwd(), configuration })
  if (configuration !== null) applyConfiguration(configuration, release, path ?? '')
  const own = path !== null ? [...release.args, ...argv.slice(3)] : argv[0] === '--' ? argv.slice(1) : argv
  if (process.execArgv.includes('-e')) tellParseArgs()
  application(own)
}

/** The exact words of a unit, of our supervisor and of the image; everybody else's `serve` is the application's. */
function configurationOf({ service }: OwnWords, [word, flag, path]: string[]): string | null {
  if (word !== 'serve') return null
  if (flag === '--config' && path !== undefined) return path
  const variable = `${service.toUpperCase().replaceAll(/[^A-Z0-9]/g, '_')}_CONFIG`
  const isImage = flag === undefined && process.env['BATON_CONTAINER'] === '1'
  return isImage ? (process.env[variable] ?? null) : null
}

/** Compiled by hand: nothing of it is looked at in a process that serves. */
function runOperator(text: string, argv: string[]): void {
  const { compileFunction } = process.getBuiltinModule('node:vm')
  const require = createRequire(process.execPath)
  const inner = { exports: {} as { runOperator?: (argv: string[]) => Promise<number> } }
  const names = ['exports', 'require', 'module', '__filename', '__dirname']
  const script = compileFunction(text, names, { filename: 'operator.cjs' })
  Reflect.apply(script, inner.exports, [inner.exports, require, inner, process.execPath, '/'])
  void inner.exports.runOperator?.(argv).then((exitCode) => void (process.exitCode = exitCode))
}
