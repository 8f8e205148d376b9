// Deploys a release to a container: pulls the image, recreates the container beside the old one, and goes back if that fails.

import { deployContainer } from './container/command.ts'
import { SOURCES } from './container/program.ts'
import { IS_PACKAGED } from './make/place.ts'

const [name, sources] = IS_PACKAGED
  ? ['baton deploy container', SOURCES.package]
  : ['deploy-container.sh', SOURCES.clone]
process.exitCode = await deployContainer(process.argv.slice(2), name, sources)
