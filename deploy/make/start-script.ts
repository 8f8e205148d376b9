// Reads a start script such as `prisma migrate deploy && LOG_LEVEL=info node --max-old-space-size=512 server.js --port 8080`: which
// program it runs, what it gives to Node and to the program, and what else it does. Pure; it reads words, and understands no shell.
// Must hold: whatever stands in the script is in the result somewhere, so that nothing of it is lost without a word.

import { posix } from 'node:path'

export interface ScriptWords {
  /** with `{port}` and `{host}` in place of a plain port and host */
  args: string[]
  /** words that only a shell can read */
  lostArgs: string[]
}

export interface NodeCommand extends ScriptWords {
  /** flags of Node, those of NODE_OPTIONS first, as `nodeFlags` wants them: `-r dotenv/config` is `--require=dotenv/config` */
  flags: string[]
  /** as it stands there; null if there is none */
  program: string | null
}

export interface OtherCommand extends ScriptWords {
  /** the program's name, such as `n8n` */
  name: string
}

/** A script of package.json: the command that runs the application, and what stands around it. */
export interface StartScript {
  /** that command, as it stands there */
  command: string
  /** null: it runs no file by `node` or by a runner */
  node: NodeCommand | null
  /** runs the file in place of `node` and starts it again, such as pm2-runtime; null: none does */
  runner: { name: string; options: string[] } | null
  /** where the script goes before it starts that, as a path in the project's folder: `cd server && …`; `.`: it stays */
  folder: string
  /** commands that run before it or beside it, those of a `prestart` too */
  before: string[]
  /** what stands behind it, such as `| pino-pretty` */
  after: string[]
  /** a program that starts it and is none of Node's, such as `dotenv -e .env --`; null: none */
  through: string | null
  /** variables in front of it */
  environment: Record<string, string>
  /** those whose value only a shell can read, as they stand there */
  lostVariables: string[]
}

/** flags whose value may be the next word; a `=` in place of the space means the same */
const WITH_VALUE =
  /^--(?:require|import|loader|experimental-loader|conditions|env-file|env-file-if-exists|watch-path|title|disable-warning|unhandled-rejections|dns-result-order|redirect-warnings)$/
const SHORT: Readonly<Record<string, string>> = { '-r': '--require', '-C': '--conditions' }
/** runs a file as `node --import=tsx` does */
const TSX = /^(?:[\w./-]*\/)?tsx$/
const ASSIGNMENT = /^[A-Za-z_]\w*=/
/** words in front of a command that change nothing for it */
const PLAIN = /^(?:cross-env|cross-env-shell|env|exec|npx|--)$/
/** they run a file and start it again */
const RUNNERS = ['pm2-runtime', 'pm2', 'nodemon', 'forever']
/** their flags whose value is the next word */
const RUNNER_VALUE =
  /^(?:-[newxdiol]|--(?:name|instances|env|watch|ext|exec|ignore|delay|output|error|log|cwd|interpreter|node-args|max-memory-restart|format|config))$/
const NAMED_PORT = /^(-{0,2}port=)\d+$/i
const NAMED_HOST = /^(-{0,2}(?:host|hostname)=)[\w.:[\]-]+$/i
/** flags of an address, if such a value follows: another value may be a file, or the address of somebody else */
const ADDRESS_FLAG = /^(?:-[abH]|--?(?:addr|address|bind|bind-address|listen-address|ip))$/
const ADDRESS = /^(?:127\.0\.0\.1|0\.0\.0\.0|localhost|::1?|\[::1?\])$/

/** Null if there is no such script. `npm run other` and the like are read as what the other script runs. */
export function readStart(scripts: Readonly<Record<string, string>>, name: string): StartScript | null {
  const steps = stepsOf(scripts, name, [])
  const environment: Record<string, string> = {}
  const lostVariables: string[] = []
  const take = (assignments: readonly string[]) => {
    for (const word of assignments) {
      const [, variable = '', value = ''] = /^(\w+)=(.*)$/s.exec(word) ?? []
      const bare = bareWord(value)
      if (variable === 'NODE_OPTIONS') continue // flags, which `readNodeCommand` takes
      if (/[$`]/.test(bare)) lostVariables.push(word)
      else environment[variable] = bare
    }
  }
  // what reads another command's output, or follows its failure, is not the application
  const own = steps.filter((_, at) => steps[at - 1]?.joint.startsWith('|') !== true)
  const chosen = own.findLast(({ text }) => programIn(text) !== null) ?? own.at(-1)
  if (chosen === undefined) return null
  const at = steps.indexOf(chosen)
  const before: string[] = []
  let folder = '.'
  for (const { text, joint } of steps.slice(0, at)) {
    const words = wordsIn(text)
    const to = words[0] === 'cd' && words.length === 2 ? bareWord(words[1] ?? '') : null
    if (words[0] === 'export' && words.length > 1 && words.slice(1).every((word) => ASSIGNMENT.test(word)))
      take(words.slice(1))
    else if (to !== null && /^[\w./-]+$/.test(to)) folder = posix.join(folder, to)
    else before.push(joint === '&' || joint.startsWith('|') ? `${text} ${joint}` : text)
  }
  const { assignments, rest } = frontOf(chosen.text)
  take(assignments)
  const found = programIn(chosen.text)
  const program = found?.node.program ?? null
  const isHere = folder === '.' || program === null || program.startsWith('/')
  return {
    command: chosen.text,
    node: found === null ? null : { ...found.node, program: isHere ? program : posix.join(folder, program) },
    runner: found?.runner ?? null,
    folder,
    before,
    after: steps.slice(at).flatMap(({ joint }, i) => {
      const next = steps[at + i + 1]
      return next === undefined ? (joint === '' ? [] : [joint]) : [`${joint} ${next.text}`]
    }),
    through: found === null || found.runner !== null ? null : throughOf(rest),
    environment,
    lostVariables,
  }
}

export function readNodeCommand(command: string): NodeCommand | null {
  const all = wordsIn(command)
  const at = all.findIndex((word) => isNode(word) || TSX.test(word))
  if (at === -1 || at === all.length - 1 || all[at + 1] === 'watch') return null
  const options = all.slice(0, at).findLast((word) => word.startsWith('NODE_OPTIONS='))
  const flags = flagsOf(options === undefined ? [] : wordsIn(bareWord(options.slice('NODE_OPTIONS='.length))))
  const words = all.slice(at + 1)
  if (TSX.test(all[at] ?? '')) flags.push('--import=tsx')
  flags.push(...flagsOf(words))
  const program = words.shift() ?? null
  return { flags, program, ...givenOf(words) }
}

function flagsOf(words: string[]): string[] {
  const flags: string[] = []
  while (words[0]?.startsWith('-') === true) {
    const typed = words.shift() ?? ''
    const flag = SHORT[typed] ?? typed
    flags.push(words.length > 0 && WITH_VALUE.test(flag) ? `${flag}=${bareWord(words.shift() ?? '')}` : flag)
  }
  return flags
}

/** A command of a script, with what joins it to the next one: `&&`, `;`, `|` and the like. */
interface Step {
  text: string
  joint: string
}

/** `above`: the scripts that have called this one. */
function stepsOf(scripts: Readonly<Record<string, string>>, name: string, above: readonly string[]): Step[] {
  const own = [...splitSteps(scripts[`pre${name}`] ?? ''), ...splitSteps(scripts[name] ?? '')]
  return own.flatMap((step) => {
    const called = calledScript(step.text, scripts)
    if (called === null || called.name === 'build' || [...above, name].includes(called.name)) return [step]
    const inner = stepsOf(scripts, called.name, [...above, name])
    return inner.map(({ text, joint }, at) => {
      const isLast = at === inner.length - 1
      const words = [...called.assignments, text, ...(isLast ? called.args : [])]
      return { text: words.join(' '), joint: isLast ? step.joint : joint }
    })
  })
}

function splitSteps(script: string): Step[] {
  const steps: Step[] = []
  let text = ''
  const end = (joint: string) => {
    if (text.trim() !== '') steps.push({ text: text.trim(), joint })
    text = ''
  }
  const parts = script.match(/'[^']*'|"[^"]*"|\$\([^)]*\)|[<>]&|&>|&&|\|\||[;&|\n]|\\.|[^]/g) ?? []
  for (const part of parts) {
    if (/^(?:&&|\|\||[;&|\n])$/.test(part)) end(part)
    else text += part
  }
  end('')
  return steps
}

/** The other script that a command such as `npm run serve -- --port 80` calls; null if it calls none. */
function calledScript(
  text: string,
  scripts: Readonly<Record<string, string>>,
): { name: string; assignments: string[]; args: string[] } | null {
  const { assignments, rest } = frontOf(text)
  const [manager = '', ...all] = rest
  const words = all.filter((word) => !/^(?:-s|--silent|--if-present)$/.test(word))
  const isNodes = isNode(manager) && /^--run(?:=|$)/.test(words[0] ?? '')
  if (isNodes && words[0] !== '--run') words.splice(0, 1, '--run', (words[0] ?? '').slice('--run='.length))
  if (!isNodes && !/^(?:npm|pnpm|yarn|bun)$/.test(manager)) return null
  const isSaid = isNodes || /^run(?:-script)?$/.test(words[0] ?? '')
  // of the others only `npm start` needs no `run`; yarn and pnpm need it for no script
  if (!isSaid && manager !== 'yarn' && manager !== 'pnpm' && !(manager === 'npm' && words[0] === 'start')) return null
  const [name = '', ...args] = isSaid ? words.slice(1) : words
  return Object.hasOwn(scripts, name) ? { name, assignments, args: args[0] === '--' ? args.slice(1) : args } : null
}

/** `assignments`: variables in front of a command. `rest`: from the first word that is none, nor a plain one. */
function frontOf(text: string): { assignments: string[]; rest: string[] } {
  const words = wordsIn(text)
  const at = words.findIndex((word) => !ASSIGNMENT.test(word) && !PLAIN.test(word))
  const front = at === -1 ? words : words.slice(0, at)
  return { assignments: front.filter((word) => ASSIGNMENT.test(word)), rest: at === -1 ? [] : words.slice(at) }
}

/** Null if the command runs no file by `node` or by a runner. */
function programIn(text: string): (Pick<StartScript, 'runner'> & { node: NodeCommand }) | null {
  const [name = '', ...words] = frontOf(text).rest
  if (!RUNNERS.includes(name)) {
    const node = readNodeCommand(text)
    return node === null ? null : { node, runner: null }
  }
  const options: string[] = []
  while (words.length > 0 && (/^-./.test(words[0] ?? '') || words[0] === 'start')) {
    const word = words.shift() ?? ''
    if (word !== 'start') options.push(word)
    if (RUNNER_VALUE.test(word) && words.length > 0) options.push(words.shift() ?? '')
  }
  const program = words.shift() ?? null
  // nodemon gives the rest to the program, the others what stands behind `--`
  const split = name === 'nodemon' ? -1 : words.includes('--') ? words.indexOf('--') : words.length
  options.push(...words.slice(0, Math.max(split, 0)))
  return {
    node: { flags: [], program, ...givenOf(words.slice(split + 1)) },
    runner: { name, options },
  }
}

function throughOf(rest: readonly string[]): string | null {
  const words = rest.slice(
    0,
    rest.findIndex((word) => isNode(word) || TSX.test(word)),
  )
  return words.length === 0 ? null : words.join(' ')
}

function isNode(word: string): boolean {
  return /^(?:[\w./-]*\/)?node$/.test(word)
}

function bareWord(word: string): string {
  return word.replaceAll(/"([^"]*)"|'([^']*)'/g, '$1$2')
}

/** The first program, behind variables, `cross-env` and `npx`; null if there is none. */
export function readOtherCommand(command: string): OtherCommand | null {
  const words = wordsIn(command)
  while (/^(?:cross-env|env|exec|npx|-.*|\w+=.*)$/.test(words[0] ?? '')) words.shift()
  const name = words.shift()
  return name === undefined || !/^[\w./-]+$/.test(name) ? null : { name, ...givenOf(words) }
}

/** Up to the next command. An install gives the application another port and host. */
function givenOf(words: readonly string[]): ScriptWords {
  const end = words.findIndex((word) => /^(?:&&?|\|\|?|;|\d?[<>].*)$/.test(word))
  const given: ScriptWords = { args: [], lostArgs: [] }
  let last = ''
  for (const word of end === -1 ? words : words.slice(0, end)) {
    const bare = word.replaceAll(/"([^"`\\]*)"|'([^'$]*)'/g, '$1$2')
    const isPort = /^(?:-p|--?port)$/i.test(last) && /^\d+$/.test(bare)
    const isNamed = /^--?(?:host|hostname)$/i.test(last) && /^[\w.:[\]]/.test(bare)
    const isHost = isNamed || (ADDRESS_FLAG.test(last) && ADDRESS.test(bare))
    const filling = isPort ? '{port}' : isHost ? '{host}' : filledIn(bare)
    if (filling !== null) given.args.push(filling)
    else given.lostArgs.push(word)
    last = bare
  }
  return given
}

/** Null: only a shell knows what it means. */
function filledIn(word: string): string | null {
  const named = word.replace(NAMED_PORT, '$1{port}').replace(NAMED_HOST, '$1{host}')
  if (named !== word) return named
  const variable = word
    .replace(/\$(?:PORT|\{PORT(?::-\d+)?\})/, '{port}')
    .replace(/\$(?:HOST|\{HOST(?::-[\w.]+)?\})/, '{host}')
  return /[$`'"*?;|&<>()\\]/.test(variable) ? null : variable
}

function wordsIn(text: string): string[] {
  return text.match(/(?:'[^']*'|"[^"]*"|[^\s'"])+/g) ?? []
}
