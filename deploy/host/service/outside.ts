// What the work in the service's places needs from outside of them: somebody who listens, and who may start and stop the
// service. Where root runs a command, that is root's process, and all it takes are these words.

import type { Receipt } from '../../../agent/install.ts'
import type { Stage } from '../../../agent/words.ts'
import type { Supervisor } from '../supervisor/supervisor.ts'

export interface Outside {
  stage(stage: Stage | 'start' | 'health'): void
  bytes(done: number, total: number): void
  note(line: string): void
  /** of this install, with and without systemd */
  supervisor(receipt: Receipt): Supervisor
  /** where to read the feed from; another path than the setting only where root has opened its folder */
  feedAt(setting: string): string
}
