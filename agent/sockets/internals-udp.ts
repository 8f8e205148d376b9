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
