// What a service in a container, the container that holds its sockets, and whoever replaces the former call things. Pure.

/** Variable with the path of the holder's socket in this container. The files below are in the same folder. */
export const HOLDER = 'BATON_HOLDER'

/** A socket of whoever replaces the container. While it is there, this new container waits in its first code. */
export function containerGate(id: string): string {
  return `gate-${id.slice(0, 12)}`
}

/** A file. While it is there, this new container serves beside the old one, whose turn it is. */
export function containerTurn(id: string): string {
  return `turn-${id.slice(0, 12)}`
}

/** What a container says at its gate, for the tag of its release. */
export function gateGreeting(tag: string): string {
  return `baton-gate 1 ${tag}\n`
}
