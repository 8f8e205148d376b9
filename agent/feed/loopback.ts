// The one exception to https. Must hold: a name that merely begins like this machine's is another machine.

/** This machine, by an address or the name that RFC 6761 keeps for it. `hostname` is as `URL` gives it. */
export function isLoopback(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127(\.\d{1,3}){3}$/.test(hostname)
}
