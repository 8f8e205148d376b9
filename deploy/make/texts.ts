// The texts that a release carries and compiles later. Every script ends with a function `batonText(name)`, which gives one of them:
// a function declaration is known before the first line runs, and leaves directives at the beginning where they are.

/**
 * What ends the script of an executable, which has the texts as assets. They are ASCII, but for names in the licences' comments at the
 * end: `getAsset(name, 'utf8')` would load a decoder.
 */
export const TEXTS_OF_ASSETS =
  "function batonText(name){return Buffer.from(require('node:sea').getRawAsset(name)).latin1Slice()}"

/**
 * What ends a script that has no assets: each text is a comment in a function, which V8 skips faster than it reads a literal. The
 * function's own text gives it back.
 */
export function textsInside(texts: Readonly<Record<string, string>>): string {
  const all = Object.entries(texts).map(([name, text]) => {
    const comment = JSON.stringify(text).replaceAll('*/', String.raw`*\u002f`)
    return `${JSON.stringify(name)}:()=>{/*${comment}*/}`
  })
  return `function batonText(name){return JSON.parse({${all.join(',\n')}}[name].toString().slice(7,-3))}`
}

/** An expression for the text as a function of these parameters. `name` and `filename` are expressions too. */
export function compiledText(name: string, filename: string): string {
  const parameters = "['exports','require','module','__filename','__dirname','batonText']"
  return `require('node:vm').compileFunction(batonText(${name}),${parameters},{filename:${filename}})`
}
