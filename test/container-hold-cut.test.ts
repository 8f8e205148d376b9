// @long
// Runs test/container/hold-cut.ts inside the container lab.

import { join } from 'node:path'
import { inLab } from './lab/docker.ts'

await inLab(join(import.meta.dirname, 'container/hold-cut.ts'), 3_000_000)
