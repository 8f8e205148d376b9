// @long @deadlineMs 1800000
// Runs test/container/irreversible.ts inside the container lab.

import { join } from 'node:path'
import { inLab } from './lab/docker.ts'

await inLab(join(import.meta.dirname, 'container/irreversible.ts'), 7_000_000)
