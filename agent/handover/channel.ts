// What two processes of one service say to each other, and the sockets that go with it. Nothing here knows how the second
// process came into the world; today the channel is Node's own between a process and its child.
// Must hold: what is told arrives in order while both live; what comes before somebody hears it waits.

import type { ChildProcess } from 'node:child_process'
import type { Socket } from 'node:net'

/** One end. `Said` goes out, `Heard` comes in. */
export interface Channel<Said, Heard> {
  /** Resolves to false where the other side can be told nothing any more. */
  tell(message: Said): Promise<boolean>
  /** A message with a socket, which is the other side's as soon as that has it. False where it could not be sent. */
  give(message: Said, socket: Socket): Promise<boolean>
  /** Once for each end, and at once: the listener hears every message, also those that came before. */
  hear(listener: (message: Heard, socket: Socket | null) => void): void
  /** resolves when the other side has hung up, or is dead */
  closed: Promise<void>
  hangUp(): void
}

type End = Pick<ChildProcess, 'send' | 'connected' | 'disconnect'> & {
  on(event: 'message', heard: (message: unknown, handle: unknown) => void): unknown
  once(event: 'disconnect', heard: () => void): unknown
}

/** The channel to a child that was spawned with `ipc`. `types`: what it can say; anything else is the author's. */
export function channelToChild<Said, Heard>(child: ChildProcess, types: readonly string[]): Channel<Said, Heard> {
  return channelOn(child, types)
}

/** The channel to the process that has spawned this one, or null where there is none. */
export function channelToParent<Said, Heard>(types: readonly string[]): Channel<Said, Heard> | null {
  return process.send === undefined ? null : channelOn(process as unknown as End, types)
}

function channelOn<Said, Heard>(end: End, types: readonly string[]): Channel<Said, Heard> {
  const send = (message: Said, socket?: Socket): Promise<boolean> =>
    new Promise((resolve) => {
      if (!end.connected) return resolve(false)
      end.send({ baton: message }, socket, {}, (error) => resolve(error === null))
    })
  return {
    tell: (message) => send(message),
    give: (message, socket) => send(message, socket),
    hear(listener) {
      end.on('message', (raw, handle) => {
        if (isOurs(raw, types)) listener(raw.baton as Heard, (handle as Socket | undefined) ?? null)
      })
    },
    closed: new Promise((resolve) => {
      if (!end.connected) return resolve()
      end.once('disconnect', () => resolve())
    }),
    hangUp() {
      if (end.connected) end.disconnect()
    },
  }
}

/** The envelope tells our messages from the author's, who may use the same channel. */
function isOurs(message: unknown, types: readonly string[]): message is { baton: { type: string } } {
  if (typeof message !== 'object' || message === null || !('baton' in message)) return false
  const inner = message.baton
  return typeof inner === 'object' && inner !== null && 'type' in inner && types.includes(String(inner.type))
}
