// Tests that are begun a few at a time, since what takes long in them is waiting. Each ends under its own title, and what is
// registered as usual after them begins when all of them have ended.

import type { Suite } from '../suite.ts'

export type SideBySide = (title: string, body: () => Promise<void>) => void

export function sideBySide(test: Suite, atOnce: number): SideBySide {
  const queue: (() => Promise<void>)[] = []
  let hasBegun = false
  const worker = async (): Promise<void> => {
    for (let next = queue.shift(); next; next = queue.shift()) await next()
  }
  return (title, body) => {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    promise.catch(() => {}) // told when it is its turn
    queue.push(() => body().then(resolve, reject))
    test(title, async () => {
      for (let i = 0; i < atOnce && !hasBegun; i++) void worker()
      hasBegun = true
      await promise
    })
  }
}
