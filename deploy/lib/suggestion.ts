// What somebody who mistyped a word or a flag has meant. Pure.

const [FAULTS_MAX, TYPED_MAX] = [2, 40]

/** The hint for a word that is none of `known`: the one that was meant, if that is plain, else those that are `listed`. */
export function suggestion(word: string, known: readonly string[], listed = known): string {
  const near = word.length > TYPED_MAX ? [] : known.map((one) => ({ one, faults: faultsBetween(word, one) }))
  const [best] = near.toSorted((a, b) => a.faults - b.faults)
  if (best !== undefined && best.faults <= FAULTS_MAX && best.faults < best.one.replace(/^-+/, '').length / 2)
    return `did you mean \`${best.one}\`? see --help`
  return listed.length === 0 ? 'see --help' : `there are ${listed.join(', ')}; see --help`
}

/** How many letters of one word are missing, too many, wrong or exchanged with their neighbour, to make the other of it. */
function faultsBetween(one: string, other: string): number {
  const rows = Array.from({ length: one.length + 1 }, (_, i) =>
    Array.from({ length: other.length + 1 }, (__, j) => i || j),
  )
  const at = (i: number, j: number) => rows[i]?.[j] ?? Infinity
  for (let i = 1; i <= one.length; i++) {
    for (let j = 1; j <= other.length; j++) {
      const isSame = one[i - 1] === other[j - 1]
      const isExchanged = one[i - 1] === other[j - 2] && one[i - 2] === other[j - 1]
      const ways = [at(i - 1, j) + 1, at(i, j - 1) + 1, at(i - 1, j - 1) + (isSame ? 0 : 1)]
      rows[i]![j] = Math.min(...ways, isExchanged ? at(i - 2, j - 2) + 1 : Infinity)
    }
  }
  return at(one.length, other.length)
}
