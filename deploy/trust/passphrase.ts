// Gets a passphrase from a file, from the environment (for CI) or from the terminal. Must hold: it is never echoed.

import { readFile } from 'node:fs/promises'
import { BatonError } from '../../agent/words.ts'

const VARIABLE = 'BATON_TRUST_PASSPHRASE'
const LENGTH_MIN = 12

export type Passphrases = ReturnType<typeof passphrases>

/** `path`: a file whose first line is the passphrase. */
export function passphrases(path: string | null, environment: NodeJS.ProcessEnv) {
  let last: string | null = null
  const given = async (): Promise<string | null> => {
    if (path !== null) return (await readFile(path, 'utf8')).split('\n', 1)[0] ?? ''
    return environment[VARIABLE] ?? null
  }
  return {
    /** The passphrase of an existing key. `again`: the last answer did not open it. */
    async ask(name: string, again: boolean): Promise<string> {
      const known = (await given()) ?? (again ? null : last)
      return (last = known ?? (await hidden(`passphrase for the key ${name}: `)))
    },
    /** The passphrase for new keys. The terminal is asked twice. */
    async choose(): Promise<string> {
      const chosen = (await given()) ?? (await hidden('passphrase for the new keys: '))
      if (chosen.length < LENGTH_MIN)
        throw new BatonError('refused', `expected a passphrase of at least ${LENGTH_MIN} characters`)
      if ((await given()) === null && (await hidden('repeat the passphrase: ')) !== chosen) {
        throw new BatonError('refused', 'expected the same passphrase twice')
      }
      return (last = chosen)
    },
  }
}

/** Reads one line from the terminal without showing it. */
async function hidden(question: string): Promise<string> {
  const { stdin, stderr } = process
  if (!stdin.isTTY) {
    const hint = `set ${VARIABLE}, or name a file with --passphrase-file`
    throw new BatonError('refused', 'there is no terminal for the passphrase prompt', { hint })
  }
  stderr.write(question)
  stdin.setRawMode(true).setEncoding('utf8').resume()
  try {
    let line = ''
    for await (const chunk of stdin.iterator({ destroyOnReturn: false }) as AsyncIterable<string>) {
      for (const character of chunk) {
        if (character === '\r' || character === '\n') return line
        if (character === '\u0003') throw new BatonError('interrupted', 'the passphrase prompt was interrupted')
        if (character === '\u007f') line = line.slice(0, -1)
        else line += character
      }
    }
    return line
  } finally {
    stdin.setRawMode(false).pause()
    stderr.write('\n')
  }
}
