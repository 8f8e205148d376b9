// Where this kit runs from: a clone, or the folder of the installed package.

import { fileURLToPath } from 'node:url'

declare const __BATON_PACKAGED__: boolean | undefined

/** Whether this is the installed package. It has the scripts bundled that a clone bundles when it needs them. */
export const IS_PACKAGED = typeof __BATON_PACKAGED__ !== 'undefined'

/** Root folder: two above both `deploy/make/` of a clone and `lib/esm/` of the package. */
export const PROJECT = fileURLToPath(new URL('../../', import.meta.url))
