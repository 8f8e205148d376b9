// What this executable is: the two words baked in by `deploy/build.ts`. From source they are the reference service at v0.0.0.

declare const __BATON_SERVICE__: string | undefined
declare const __BATON_TAG__: string | undefined

export interface Build {
  service: string
  tag: string
}

export const BUILD: Readonly<Build> = Object.freeze({
  service: typeof __BATON_SERVICE__ === 'string' ? __BATON_SERVICE__ : 'beacon',
  tag: typeof __BATON_TAG__ === 'string' ? __BATON_TAG__ : 'v0.0.0',
})
