// @long
// Runs test/container/compose.ts inside the container lab with a current engine.

import { join } from 'node:path'
import { inCurrentLab } from './lab/docker.ts'

await inCurrentLab(join(import.meta.dirname, 'container/compose.ts'))
