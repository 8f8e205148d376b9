// A list within a sentence. Pure.

/** `a`, `a or b`, `a, b or c`; empty for none. */
export function series(all: readonly string[], word: 'and' | 'or'): string {
  return all.length < 2 ? all.join('') : `${all.slice(0, -1).join(', ')} ${word} ${all.at(-1)}`
}
