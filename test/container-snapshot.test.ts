// Runs test/container/snapshot.ts inside the container lab.

import { join } from 'node:path'
import { inLab } from './lab/docker.ts'

await inLab(join(import.meta.dirname, 'container/snapshot.ts'))
