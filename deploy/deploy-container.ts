// Deploys a release of a container: pulls its image, recreates the container beside the old one, and goes back where it fails.

import { deployContainer } from './container/command.ts'

process.exitCode = await deployContainer(process.argv.slice(2))
