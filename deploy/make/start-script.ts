// Reads a command such as `NODE_OPTIONS=--enable-source-maps node --max-old-space-size=512 server.js --port 8080`: what a start script
// gives to Node, which program it runs, and what that program is given. Pure; it reads words, and understands no shell.

/** What a program is given. */
export interface ScriptWords {
  /** with `{port}` and `{host}` in place of a plain port and host */
  args: string[]
  /** words that only a shell can read */
  lostArgs: string[]
}

export interface NodeCommand extends ScriptWords {
  /** flags of Node, those of NODE_OPTIONS first; a flag whose value is a separate word has it after a space: `-r dotenv/config` */
  flags: string[]
  /** as it stands there; null if there is none */
  program: string | null
}

export interface OtherCommand extends ScriptWords {
  /** the program's name, such as `n8n` */
  name: string
}

/** flags whose value may be the next word */
const WITH_VALUE = ['-r', '--require', '--import', '--loader', '--experimental-loader', '-C', '--conditions']
const NAMED_PORT = /^(-{0,2}port=)\d+$/i
const NAMED_HOST = /^(-{0,2}(?:host|hostname)=)[\w.:[\]-]+$/i
/** flags of an address, if such a value follows: another value may be a file, or the address of somebody else */
const ADDRESS_FLAG = /^(?:-[abH]|--?(?:addr|address|bind|bind-address|listen-address|ip))$/
const ADDRESS = /^(?:127\.0\.0\.1|0\.0\.0\.0|localhost|::1?|\[::1?\])$/

/** Null if the command does not run `node`. */
export function readNodeCommand(command: string): NodeCommand | null {
  const [, before = '', after] = /^(.*?\s)?node\s+(.*)$/.exec(` ${command} `) ?? []
  if (after === undefined) return null
  const [, single, double, plain = ''] = /\bNODE_OPTIONS=(?:'([^']*)'|"([^"]*)"|(\S+))/.exec(before) ?? []
  const flags = wordsIn(single ?? double ?? plain)
  const words = wordsIn(after)
  while (words[0]?.startsWith('-') === true) {
    const flag = words.shift() ?? ''
    flags.push(WITH_VALUE.includes(flag) && words.length > 0 ? `${flag} ${words.shift()}` : flag)
  }
  const program = words.shift() ?? null
  return { flags, program, ...givenOf(words) }
}

/** The first program, behind variables, `cross-env` and `npx`; null if there is none. */
export function readOtherCommand(command: string): OtherCommand | null {
  const words = wordsIn(command)
  while (/^(?:cross-env|npx|-.*|\w+=.*)$/.test(words[0] ?? '')) words.shift()
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

/** Words between spaces; one in quotes may have spaces. */
function wordsIn(text: string): string[] {
  return text.match(/(?:'[^']*'|"[^"]*"|[^\s'"])+/g) ?? []
}
