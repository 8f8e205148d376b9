// Names that three processes share: a service in a container, the holder (in the container that holds its sockets), and the command
// that replaces the service's container. Pure.

/** Variable with the path of the holder's socket in this container. The files below are in the same folder. */
export const HOLDER = 'BATON_HOLDER'

/** Socket of the command that replaces the container. While it exists, the new container `id` waits in its first code. */
export function containerGate(id: string): string {
  return `gate-${id.slice(0, 12)}`
}

/** A file. While it exists, the new container `id` serves beside the old one, and the turn is the old one's. */
export function containerTurn(id: string): string {
  return `turn-${id.slice(0, 12)}`
}

/** What a container says at its gate, for the tag of its release. */
export function gateGreeting(tag: string): string {
  return `baton-gate 1 ${tag}\n`
}
