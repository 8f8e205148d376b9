// @later it takes minutes, and one of its tests was not seen to pass
// Runs test/container/cut.ts inside the container lab. @deadlineMs 900000

import { join } from 'node:path'
import { inLab } from './lab/docker.ts'

await inLab(join(import.meta.dirname, 'container/cut.ts'), 880_000)
