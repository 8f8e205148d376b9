// Tests that are begun a few at a time, since what takes long in them is waiting. Each ends under its own title, and what is
// registered as usual after them begins when all of them have ended.

import { isLong, type Suite } from '../suite.ts'

export interface SideBySide {
  (title: string, body: () => Promise<void>): void
  /** as `test.long` */
  long(title: string, body: () => Promise<void>): void
}

export function sideBySide(test: Suite, atOnce: number): SideBySide {
  const queue: (() => Promise<void>)[] = []
  let hasBegun = false
  const worker = async (): Promise<void> => {
    for (let next = queue.shift(); next; next = queue.shift()) await next()
  }
  const beside = (title: string, body: () => Promise<void>): void => {
    const { promise, resolve, reject } = Promise.withResolvers<void>()
    promise.catch(() => {}) // told when it is its turn
    queue.push(() => body().then(resolve, reject))
    test(title, async () => {
      for (let i = 0; i < atOnce && !hasBegun; i++) void worker()
      hasBegun = true
      await promise
    })
  }
  const long = (title: string, body: () => Promise<void>): void =>
    isLong ? beside(title, body) : test.long(title, body)
  return Object.assign(beside, { long })
}
