// @long
// Runs test/container/one-way.ts inside the container lab.

import { join } from 'node:path'
import { inLab } from './lab/docker.ts'

await inLab(join(import.meta.dirname, 'container/one-way.ts'), 3_000_000)
