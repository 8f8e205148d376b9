// The signals by which a terminal, a person or a supervisor ends a command.

export const END_SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const

/** Calls `act` at each of these signals, until the end of the scope. */
export function onSignals(signals: readonly NodeJS.Signals[], act: (signal: NodeJS.Signals) => void): Disposable {
  for (const signal of signals) process.on(signal, act)
  return {
    [Symbol.dispose]() {
      for (const signal of signals) process.off(signal, act)
    },
  }
}
