// How long clients with a connection that lasts were without one. It is copied beside each client.mjs.

/** `left` and `back` take whatever stands for a client. Times in milliseconds. */
export function absences() {
  const since = new Map()
  const took = []
  return {
    took,
    left: (client) => void (since.has(client) || since.set(client, performance.now())),
    back(client) {
      if (since.has(client)) took.push(Math.round(performance.now() - since.get(client)))
      since.delete(client)
    },
  }
}

/** A note for a person: how often, and how long. */
export function notesOf({ took }) {
  return took.length === 0 ? ['nobody was away'] : [`away for ${took.join(', ')} ms`]
}
