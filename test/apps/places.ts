// What is asked of an adopted application at every place, and what is seen there.

export const PATHS = ['/healthz', '/work', '/hello.txt'] as const

export const PLACES = ['systemd', 'image'] as const

/** What was seen at one place. */
export interface Place {
  requests: number
  lost: number
  closed: number
  outcomes: string[]
  /** `path -> status` of everything that was asked */
  answers: Record<string, number>
}
