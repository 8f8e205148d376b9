// Deploys a release to a container: pulls the image, recreates the container beside the old one, and goes back if that fails.

import { deployContainer } from './container/command.ts'

process.exitCode = await deployContainer(process.argv.slice(2))
