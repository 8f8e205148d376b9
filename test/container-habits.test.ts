// @long
// Runs test/container/habits.ts inside the container lab.

import { join } from 'node:path'
import { inLab } from './lab/docker.ts'

await inLab(join(import.meta.dirname, 'container/habits.ts'), 1_800_000)
