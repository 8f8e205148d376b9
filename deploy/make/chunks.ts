// Puts a program together that was split into chunks: what it loads first goes into the script, and the first import of any other chunk
// compiles it. V8 scans a whole script before it runs the first line, so the script holds no more than that.
// Must hold: each module is in exactly one chunk, so there is one copy of its state. A chunk that fails to load can be tried again.

import { basename } from 'node:path'

export interface Chunk {
  /** of a CommonJS module that requires other chunks as `./name` */
  text: string
  imports: readonly { path: string; kind: string; external?: boolean }[]
}

/** What a text is called with. `batonText(name)` gives the texts that the release carries (bundle.ts). */
export const PARAMETERS = "['exports','require','module','__filename','__dirname','batonText']"

/** `main`: name of the chunk that is the program. The script needs a `batonText` behind it, for the chunks in `later`. */
export function assembleProgram(
  main: string,
  chunks: ReadonlyMap<string, Chunk>,
): { script: string; later: Record<string, string> } {
  const first = new Set([main])
  for (const name of first) {
    for (const { path, kind, external } of chunks.get(name)?.imports ?? []) {
      if (kind === 'import-statement' && external !== true) first.add(basename(path))
    }
  }
  const own = [...first].map((name) => `${JSON.stringify(name)}(exports,require,module){${chunks.get(name)?.text}\n}`)
  const others = [...chunks].filter(([name]) => !first.has(name))
  const known = JSON.stringify(others.map(([name]) => name))
  const script = `const chunks={${own.join(',\n')}},later=new Set(${known}),loaded={}
function load(path){
const name=path.slice(2)
if(!path.startsWith('./')||!(Object.hasOwn(chunks,name)||later.has(name)))return require(path)
if(Object.hasOwn(loaded,name))return loaded[name].exports
const made=loaded[name]={exports:{}}
const run=chunks[name]??require('node:vm').compileFunction(batonText(name),${PARAMETERS},{filename:name})
try{run.call(made.exports,made.exports,load,made,__filename,__dirname)}catch(error){delete loaded[name];throw error}
return made.exports}
module.exports=load(${JSON.stringify(`./${main}`)})
`
  return { script, later: Object.fromEntries(others.map(([name, { text }]) => [name, text])) }
}
