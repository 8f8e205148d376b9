// @long
// Runs test/container/irreversible.ts inside the container lab.

import { join } from 'node:path'
import { inLab } from './lab/docker.ts'

await inLab(join(import.meta.dirname, 'container/irreversible.ts'), 3_000_000)
