// Latencies in constant memory: a log-linear histogram of microseconds, each bucket less than 1 % wide.

export interface Latency {
  count: number
  p50Ms: number
  p90Ms: number
  p99Ms: number
  p999Ms: number
  maxMs: number
}

export interface Histogram {
  record(ms: number): void
  latency(): Latency
}

const LINEAR = 256 // below this many microseconds one bucket is one microsecond
const SUB_BUCKETS = 128
const BUCKETS = LINEAR + 24 * SUB_BUCKETS // up to 2^32 microseconds, more than an hour

export function createHistogram(): Histogram {
  const counts = new Uint32Array(BUCKETS)
  let count = 0
  let maxMs = 0

  const quantile = (q: number): number => {
    if (count === 0) return 0
    let left = Math.max(1, Math.ceil(q * count))
    for (let i = 0; i < BUCKETS; i++) {
      left -= counts[i] ?? 0
      if (left <= 0) return Math.min(maxMs, round(upperEdge(i) / 1000))
    }
    return maxMs
  }

  return {
    record(ms) {
      const index = bucketOf(Math.max(0, Math.round(ms * 1000)))
      counts[index] = (counts[index] ?? 0) + 1
      count++
      if (ms > maxMs) maxMs = round(ms)
    },
    latency: () => ({
      count,
      p50Ms: quantile(0.5),
      p90Ms: quantile(0.9),
      p99Ms: quantile(0.99),
      p999Ms: quantile(0.999),
      maxMs,
    }),
  }
}

function bucketOf(us: number): number {
  if (us < LINEAR) return us
  const exponent = Math.min(31, Math.floor(Math.log2(us))) // 8 and up
  const sub = Math.min(SUB_BUCKETS - 1, Math.floor((us / 2 ** exponent - 1) * SUB_BUCKETS))
  return LINEAR + (exponent - 8) * SUB_BUCKETS + sub
}

function upperEdge(index: number): number {
  if (index < LINEAR) return index
  const exponent = Math.floor((index - LINEAR) / SUB_BUCKETS) + 8
  const sub = (index - LINEAR) % SUB_BUCKETS
  return 2 ** exponent * (1 + (sub + 1) / SUB_BUCKETS)
}

function round(value: number): number {
  return Math.round(value * 1000) / 1000
}
