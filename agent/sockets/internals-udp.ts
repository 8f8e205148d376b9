// What Node does not show of its UDP sockets, as internals.ts has it of the others. Apart, since few services have one.
// Must hold: if a part is missing, only what needs it fails.

/** Descriptor of a bound UDP socket, or null. */
export function descriptorOfUdp(socket: object): number | null {
  const { handle } = stateOfUdp(socket) ?? {}
  return typeof handle?.fd === 'number' && handle.fd >= 0 ? handle.fd : null
}

/** `bindState`: 0 unbound, 1 binding, 2 bound; what is sent while it is 1 waits. `handle`: null when it is closed. */
interface UdpState {
  handle?: ({ fd?: number; recvStop?(): unknown } & Record<symbol, unknown>) | null
  bindState?: number
}

export function stateOfUdp(socket: object): UdpState | null {
  const state = Object.getOwnPropertySymbols(socket).find(({ description }) => description === 'state symbol')
  return state === undefined ? null : ((socket as Record<symbol, UdpState | undefined>)[state] ?? null)
}

/** Gives each of two UDP sockets what the other has bound. */
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
