// Makes the application's SIGTERM handlers its `onStop`, if its author has set `"onStop": "SIGTERM"`: for packages that close their
// database or save their state there, if nobody wants to change their sources. An update sends no signal, and on a real SIGTERM
// the agent would exit without waiting for such a handler.
// Must hold: a handler is called once at most, when no request is in flight any more, whatever made this process stop.

const SIGNAL = 'SIGTERM'
/** the agent itself registers by `prependListener`, which is left alone */
const ADDING = ['on', 'addListener', 'once'] as const
const REMOVING = ['off', 'removeListener'] as const

type Handler = (signal: NodeJS.Signals, number: number) => unknown
type Register = (event: string, handler: Handler) => NodeJS.Process

/**
 * From now on collects the handlers that are registered for SIGTERM. Returns a function that calls them and resolves when their
 * promises have. A handler that returns no promise counts as one that ends the process itself: then the function never resolves.
 */
export function takeSignalHandlers(): () => Promise<void> {
  const taken: Handler[] = []
  const replace = (name: (typeof ADDING | typeof REMOVING)[number], act: (handler: Handler) => boolean) => {
    const own = process[name].bind(process) as Register
    const register: Register = (event, handler) => (event === SIGNAL && act(handler) ? process : own(event, handler))
    Object.assign(process, { [name]: register })
  }
  for (const name of ADDING) replace(name, (handler) => taken.push(handler) > 0)
  for (const name of REMOVING) {
    replace(name, (handler) => {
      const at = taken.lastIndexOf(handler)
      return at !== -1 && taken.splice(at, 1).length > 0
    })
  }
  return async () => {
    const results = taken.splice(0).map((handler) => handler(SIGNAL, 15))
    await Promise.all(results)
    if (results.some((one) => !isPromise(one))) await new Promise<never>(() => {})
  }
}

function isPromise(value: unknown): boolean {
  return typeof value === 'object' && value !== null && 'then' in value
}
