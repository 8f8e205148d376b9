// What somebody types at the commands: a word or a flag with a typo is told which one was meant, and help is where it is looked for.

import { join } from 'node:path'
import { EXIT } from '../agent/words.ts'
import { type Flags, parseFlags, unknownCommand } from '../deploy/lib/flags.ts'
import { run } from '../deploy/lib/shell.ts'
import { PROJECT } from '../deploy/make/place.ts'
import type { BatonError } from '../agent/words.ts'
import { equal, is, match, throws } from './assert.ts'
import { suite } from './suite.ts'

const test = suite('typed', { timeoutMs: 60_000 })
const FLAGS = {
  release: { type: 'string', description: '' },
  'dry-run': { type: 'boolean', alias: 'n', description: '' },
  yes: { type: 'boolean', alias: 'y', description: '' },
} as const satisfies Flags

test('the flag that was meant is named if it is plain; else all are', () => {
  const hintFor = (flag: string) => (throws(() => parseFlags([flag], { args: FLAGS })) as BatonError).hint
  for (const typo of ['--relase', '--releas', '--rlease', '--Release', '--releaes', '--releases'])
    is(hintFor(typo), 'did you mean `--release`? see --help', typo)
  is(hintFor('--dryrun'), 'did you mean `--dry-run`? see --help')
  for (const other of ['--tag', '--no', '-x', `--${'r'.repeat(100_000)}`])
    is(hintFor(other), 'there are --release, --dry-run, --yes; see --help', other.slice(0, 20))
})

test('the command that was meant is named if it is plain; else all are', () => {
  const words = ['install', 'upgrade', 'rollback', 'start', 'stop', 'status', 'state']
  const hintFor = (word: string) => unknownCommand(word, words).hint
  const meant = { upgarde: 'upgrade', rolback: 'rollback', stat: 'start', statsu: 'status', instal: 'install' }
  for (const [typo, word] of Object.entries(meant)) is(hintFor(typo), `did you mean \`${word}\`? see --help`)
  match(hintFor('frobnicate') ?? '', /^there are install, upgrade, /)
})

test('baton: its version, help for a command in both ways, help of `deploy`, and what is not there', async () => {
  const baton = async (...args: string[]) => {
    const script = join(PROJECT, 'deploy', 'baton.ts')
    const { exitCode, stdout, stderr } = await run([process.execPath, script, ...args], { allowFailure: true })
    return [exitCode, stdout + stderr] as const
  }
  const [version, same] = await Promise.all([baton('--version'), baton('-v')])
  match(version[1], /^baton \d+\.\d+\.\d+\n$/)
  equal(same, version)
  const [long, short, deploy] = await Promise.all([
    baton('publish', '--help'),
    baton('help', 'publish'),
    baton('deploy', '--help'),
  ])
  match(long[1], /--to=<target>/)
  equal(short, long)
  match(deploy[1], /systemd +install or upgrade on this host/)
  equal([long[0], deploy[0]], [EXIT.done, EXIT.done])
  for (const words of [['publsh'], ['help', 'publsh'], ['deploy', 'contaner'], ['publish', '--flder', 'x']]) {
    const [exitCode, said] = await baton(...words)
    is(exitCode, EXIT.usage, said)
    match(
      said,
      /^error: there is no (command|flag) "[-a-z]+" here\nhint: did you mean `(publish|container|--folder)`\? see --help\n$/,
    )
  }
})

test.run()
