// Deploys a release of a container: pulls its image, recreates the container beside the old one, and goes back where it fails.

import { main } from './container/command.ts'

process.exitCode = await main(process.argv.slice(2))
