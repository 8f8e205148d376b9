// The private parts of Node's UDP sockets that the handover needs; internals.ts has all others. A separate file, since few services
// use UDP. Must hold: if a part is missing, only the callers that need it fail.

/** Descriptor of a bound UDP socket, or null. */
export function descriptorOfUdp(socket: object): number | null {
  const { handle } = stateOfUdp(socket) ?? {}
  return typeof handle?.fd === 'number' && handle.fd >= 0 ? handle.fd : null
}

/** `bindState`: 0 unbound, 1 binding (Node queues what is sent), 2 bound. `handle`: null once the socket is closed. */
interface UdpState {
  handle?: ({ fd?: number; recvStop?(): unknown } & Record<symbol, unknown>) | null
  bindState?: number
}

export function stateOfUdp(socket: object): UdpState | null {
  const state = Object.getOwnPropertySymbols(socket).find(({ description }) => description === 'state symbol')
  return state === undefined ? null : ((socket as Record<symbol, UdpState | undefined>)[state] ?? null)
}

/**
 * A socket that another process has had may be a member of a group already. The first time that this process joins a group is then no
 * error; a second time is one, as ever. While `isGiven`, the next process is a member by the same socket: this one does not leave for it.
 */
export function keepMemberships(socket: object, isGiven: () => boolean): void {
  for (const kind of ['Membership', 'SourceSpecificMembership']) {
    const [join, leave] = [`add${kind}`, `drop${kind}`].map((name) => Reflect.get(socket, name) as Method)
    const joined = new Set<string>()
    Reflect.set(socket, `add${kind}`, (...args: unknown[]) => {
      const group = args.join(' ')
      const isFirst = !joined.has(group)
      joined.add(group)
      try {
        return join?.apply(socket, args)
      } catch (cause) {
        if (!isFirst || (cause as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw cause
      }
    })
    Reflect.set(socket, `drop${kind}`, (...args: unknown[]) => {
      if (!joined.delete(args.join(' ')) || !isGiven()) return leave?.apply(socket, args)
    })
  }
}

type Method = (...args: unknown[]) => unknown

/** Exchanges the bound handles of two UDP sockets. */
export function swapUdp(one: object, other: object): void {
  const [first, second] = [stateOfUdp(one), stateOfUdp(other)]
  if (!first?.handle || !second?.handle) return
  ;[first.handle, second.handle] = [second.handle, first.handle]
  for (const [socket, { handle }] of [
    [one, first],
    [other, second],
  ] as const)
    for (const symbol of Object.getOwnPropertySymbols(handle))
      if (symbol.description === 'owner_symbol' && handle) handle[symbol] = socket
}
