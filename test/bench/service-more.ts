// The service with a package more, as a release with an ordinary change has.

import { fc } from '../lab/fast-check.ts'

export const added = fc
import './service.ts'
