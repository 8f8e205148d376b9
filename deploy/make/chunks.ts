// Puts a program together that was split into chunks: what it loads first is joined to one script again, and the first import of any other
// chunk compiles it. V8 scans a whole script before it runs the first line, so the script holds no more than that.
// Must hold: each module is in exactly one chunk, so there is one copy of its state. A chunk that fails to load can be tried again.
// The names are the same in every folder.

import { basename } from 'node:path'
import { compiledText } from './texts.ts'

export interface Chunk {
  /** in the program: a number, and what is imported by its own name has that too */
  name: string
  /** as the bundler calls it, with a hash that is of the folder too */
  file: string
  /** path from the folder of the sources, if the chunk is imported by its own name; else '' */
  entryPoint: string
  /** imports other chunks as `./name` */
  text: string
  /** files of the chunks that it loads first */
  first: readonly string[]
}

type Outputs = Readonly<Record<string, { entryPoint?: string; imports: readonly Import[] }>>

interface Import {
  path: string
  kind: string
  external?: boolean
}

/**
 * The chunks in the order of their imports. The first one is the program, whose entry point is `program`. `files`: the bundler's text of
 * each file.
 */
export function numberedChunks(program: string, outputs: Outputs, files: ReadonlyMap<string, string>): Chunk[] {
  const parts = new Map(Object.entries(outputs).map(([path, part]) => [basename(path), part]))
  const found = new Set([...parts].filter(([, { entryPoint }]) => entryPoint === program).map(([file]) => file))
  for (const file of found) {
    for (const { path } of parts.get(file)?.imports ?? []) if (parts.has(basename(path))) found.add(basename(path))
  }
  const chunks = [...found].map((file, number) => {
    const { entryPoint = '', imports = [] } = parts.get(file) ?? {}
    const first = imports.filter(({ kind, external }) => kind === 'import-statement' && external !== true)
    const own = entryPoint === '' ? '' : `-${basename(entryPoint).replace(/\.\w+$/, '')}`
    return { name: `${number}${own}.js`, file, entryPoint, first: first.map(({ path }) => basename(path)) }
  })
  const names = new Map(chunks.map(({ file, name }) => [`"./${file}"`, `"./${name}"`]))
  return chunks.map((chunk) => ({
    ...chunk,
    text: (files.get(chunk.file) ?? '').replaceAll(/"\.\/[\w.-]+"/g, (path) => names.get(path) ?? path),
  }))
}

/** The program and all that it loads first, as one module: what the program exports, and each of these chunks under `exportedAs`. */
export function joinedFirst(chunks: readonly Chunk[]): { names: ReadonlySet<string>; text: string } {
  const first = new Set(chunks.slice(0, 1))
  for (const { first: files } of first) for (const chunk of chunks) if (files.includes(chunk.file)) first.add(chunk)
  const names = [...first].map(({ name }) => name)
  const lines = names.map((name) => `export * as ${exportedAs(name)} from ${JSON.stringify(`./${name}`)}`)
  return { names: new Set(names), text: [`export * from ${JSON.stringify(`./${names[0]}`)}`, ...lines].join('\n') }
}

const exportedAs = (name: string) => `_${Number.parseInt(name)}`

/**
 * `first`: names of the chunks in `text`, which is CommonJS now. The script needs a `batonText` behind it, for the chunks that are named in
 * `later`.
 */
export function assembleProgram(first: ReadonlySet<string>, text: string, later: readonly string[]): string {
  const own = Object.fromEntries([...first].map((name) => [name, exportedAs(name)]))
  return `const first=${JSON.stringify(own)},later=new Set(${JSON.stringify(later)}),loaded={},whole={exports:{}}
function load(path){
const name=path.slice(2)
if(path.startsWith('./')&&Object.hasOwn(first,name))return whole.exports[first[name]]
if(!path.startsWith('./')||!later.has(name))return require(path)
if(Object.hasOwn(loaded,name))return loaded[name].exports
const made=loaded[name]={exports:{}}
try{${compiledText('name', 'name')}.call(made.exports,made.exports,load,made,__filename,__dirname,batonText)}catch(error){delete loaded[name];throw error}
return made.exports}
(function(require,module){'use strict';${text}
})(load,whole)
module.exports=whole.exports
`
}
