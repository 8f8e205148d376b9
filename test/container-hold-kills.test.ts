// @long
// Runs test/container/hold-kills.ts inside the container lab.

import { join } from 'node:path'
import { inLab } from './lab/docker.ts'

await inLab(join(import.meta.dirname, 'container/hold-kills.ts'), 5_400_000)
