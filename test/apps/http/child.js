import { release } from 'baton-kit/release'

process.send(release.tag)
process.disconnect()
