// Where this kit itself is: a clone, or the folder of the installed package.

import { fileURLToPath } from 'node:url'

declare const __BATON_PACKAGED__: boolean | undefined

/** Whether this is the installed package: what is bundled in a clone was bundled when it was packed. */
export const IS_PACKAGED = typeof __BATON_PACKAGED__ !== 'undefined'

/** Both `deploy/make/` of a clone and `lib/esm/` of the package are two below. */
export const PROJECT = fileURLToPath(new URL('../../', import.meta.url))
