// The types of what is used of `semver`, which brings none.
declare module 'semver' {
  export function satisfies(version: string, range: string): boolean
  export function compare(a: string, b: string): -1 | 0 | 1
  export function validRange(range: string): string | null
}
