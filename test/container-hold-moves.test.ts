// @long
// Runs test/container/hold-moves.ts inside the container lab.

import { join } from 'node:path'
import { inLab } from './lab/docker.ts'

await inLab(join(import.meta.dirname, 'container/hold-moves.ts'))
