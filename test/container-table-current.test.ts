// Runs test/container/table.ts inside the container lab with a current engine, which keeps images in containerd and refuses old versions of its API.

import { join } from 'node:path'
import { inCurrentLab } from './lab/docker.ts'

await inCurrentLab(join(import.meta.dirname, 'container/table.ts'), { store: 'containerd' })
