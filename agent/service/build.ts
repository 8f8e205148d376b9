// The service and tag of this executable, which the build of the reference service compiles in. In another author's executable they
// come from its release. From source: the reference service at v0.0.0.

import { ownRelease } from '../first.ts'

declare const __BATON_SERVICE__: string | undefined
declare const __BATON_TAG__: string | undefined

export interface Build {
  service: string
  tag: string
}

export const BUILD: Readonly<Build> = Object.freeze(readBuild())

function readBuild(): Build {
  if (typeof __BATON_SERVICE__ === 'string' && typeof __BATON_TAG__ === 'string')
    return { service: __BATON_SERVICE__, tag: __BATON_TAG__ }
  const { kind, service, tag } = ownRelease()
  return kind === 'source' ? { service: 'beacon', tag: 'v0.0.0' } : { service, tag }
}
