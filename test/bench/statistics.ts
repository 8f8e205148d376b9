// Medians, and how far values lie around them.

export function median(values: readonly number[]): number {
  return quantile(values, 0.5)
}

export function quantile(values: readonly number[], q: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  if (sorted.length === 0) return Number.NaN
  const at = (sorted.length - 1) * q
  const [low, high] = [sorted[Math.floor(at)] ?? Number.NaN, sorted[Math.ceil(at)] ?? Number.NaN]
  return low + (high - low) * (at - Math.floor(at))
}

/** Median of the ratios of pairs measured one after the other: what else the machine does hits both of a pair. */
export function medianRatio(pairs: readonly (readonly [number, number])[]): number {
  return median(pairs.map(([a, b]) => a / b))
}
