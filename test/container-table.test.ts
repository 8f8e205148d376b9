// @long
// Runs test/container/table.ts inside the container lab.

import { join } from 'node:path'
import { inLab } from './lab/docker.ts'

await inLab(join(import.meta.dirname, 'container/table.ts'))
