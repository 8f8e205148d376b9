// @long
// Runs test/container/hold-waits.ts inside the container lab with a current engine.

import { join } from 'node:path'
import { inCurrentLab } from './lab/docker.ts'

await inCurrentLab(join(import.meta.dirname, 'container/hold-waits.ts'), { deadlineMs: 1_800_000 })
