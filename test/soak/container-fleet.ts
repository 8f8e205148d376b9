// `npm run soak -- --container-fleet`: runs test/container/fleet.ts inside the container lab. It takes more minutes than CI has.

import { join } from 'node:path'
import { inLab } from '../lab/docker.ts'

await inLab(join(import.meta.dirname, '../container/fleet.ts'))
