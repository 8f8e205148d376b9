// The TCP ports that a container publishes, and the one that an image says. Pure.

import { type Fields, labelsOf } from './inspection.ts'
import { IMAGE_LABELS } from './reference.ts'

export function tcpPorts(ports: Fields | null | undefined): number[] {
  return Object.keys(ports ?? {}).flatMap((port) => (port.endsWith('/tcp') ? [Number.parseInt(port, 10)] : []))
}

/** On which it listens, of an image or a container of it; null if it does not say. */
export function saidPort(of: Parameters<typeof labelsOf>[0]): number | null {
  const said = Number(labelsOf(of)[IMAGE_LABELS.port] ?? '')
  return Number.isInteger(said) && said > 0 && said < 65_536 ? said : null
}
