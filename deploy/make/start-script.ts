// Reads a command such as `NODE_OPTIONS=--enable-source-maps node --max-old-space-size=512 server.js`: what a start script gives to
// Node, and which program it runs. Pure; it reads words, and understands no shell.

export interface NodeCommand {
  /** flags of Node, those of NODE_OPTIONS first; a flag whose value is a word of its own has it after a space: `-r dotenv/config` */
  flags: string[]
  /** as it stands there; null if there is none */
  program: string | null
}

/** flags whose value may be the next word */
const WITH_VALUE = ['-r', '--require', '--import', '--loader', '--experimental-loader', '-C', '--conditions']

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
  return { flags, program: words[0] ?? null }
}

function wordsIn(text: string): string[] {
  return text.split(/\s+/).filter((word) => word !== '')
}
