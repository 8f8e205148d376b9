// Deploys a release to a container: pulls the image, recreates the container beside the old one, and goes back if that fails.

import { deployContainer } from './container/command.ts'
import { IS_PACKAGED } from './make/place.ts'

const name = IS_PACKAGED ? 'baton deploy container' : 'deploy-container.sh'
process.exitCode = await deployContainer(process.argv.slice(2), name)
