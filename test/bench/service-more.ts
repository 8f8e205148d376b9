// The service with a package more, as a release with an ordinary change has: some 500 kB of code.

import * as undici from 'undici'

export const added = undici
import './service.ts'
