// The commands of `baton`: what each is for, and what may be typed behind it. Pure.

import {
  ADVANCED,
  type CommandLine,
  DELTA_FLAGS,
  duration,
  flag,
  type Flags,
  option,
  OUTPUT_FLAGS,
  SCRIPT_FLAGS,
  word,
  YES,
} from '../lib/flags.ts'
import { COMPRESSIONS } from './pack.ts'
import { RELEASES_FOLDER } from './project.ts'

const DIR = {
  dir: option('dir', "the application's folder", { default: '.', advanced: true }),
} as const satisfies Flags
const OUT = {
  out: option('dir', `releases folder (${RELEASES_FOLDER}/)`, ADVANCED),
} as const satisfies Flags
const TAG = word('the release, such as v1.1.0')

/** Commands that this program carries out itself. */
export const OWN_WORDS = {
  init: {
    name: 'init',
    description: 'examine the application, then write its configuration and the line that loads Baton',
    args: {
      ...DIR,
      service: option('name', 'name of the service (default: the one in package.json)'),
      try: flag('start the application once, from source, to detect its database and ports'),
      ...YES,
      ...SCRIPT_FLAGS,
    },
  },
  dev: {
    name: 'dev',
    description: 'serve from source, and reload on each save without dropping connections',
    args: {
      ...DIR,
      port: option('number', 'port to listen on (default: $PORT, then `port`)'),
      watch: { type: 'boolean', default: true, negativeDescription: 'watch only the feed, not files' },
    },
  },
  build: {
    name: 'build',
    description: 'make a release',
    args: {
      tag: TAG,
      ...DIR,
      ...OUT,
      kind: option('kind', 'app, bundle or script; overrides the configuration', ADVANCED),
      feed: option('feed', 'where hosts look for the next release'),
      notes: option('text|file', 'release notes'),
      from: option('>=1.4.0', 'the oldest release that hosts may update from', ADVANCED),
      security: flag(
        'mark the release as a security fix; if the feed is signed, hosts ignore `minAge` for it',
        ADVANCED,
      ),
      compress: option('effort', COMPRESSIONS.join(', '), { default: 'normal' }),
      ...DELTA_FLAGS,
      make: {
        type: 'boolean',
        default: true,
        advanced: true,
        negativeDescription: 'do not run the `build` script first',
      },
      try: {
        type: 'boolean',
        default: true,
        former: 'check',
        negativeDescription:
          'do not test the release (the test starts it, then switches to a second process of the same release)',
      },
      force: flag('replace a different release that has the same tag', ADVANCED),
      ...SCRIPT_FLAGS,
    },
  },
  publish: {
    name: 'publish',
    description: 'copy a release to where hosts look for it',
    args: {
      tag: TAG,
      ...DIR,
      ...OUT,
      to: option('target', '/folder, user@host:/folder or github:owner/name'),
      ...OUTPUT_FLAGS,
    },
  },
  rebuild: {
    name: 'rebuild',
    description: 'rebuild native addons for the Node version that goes into a release',
    args: { ...DIR, ...SCRIPT_FLAGS },
  },
  trial: {
    name: 'trial',
    description: 'try a release on a copy of the data, then the previous release on the resulting data',
    args: {
      tag: word('the release to try (default: the newest)'),
      ...DIR,
      ...OUT,
      from: option('vX.Y.Z', 'the release in use now (required)'),
      data: option('path', 'a database or a state directory; the trial uses a copy'),
      'start-timeout': duration('time limit for each start', { default: '60s', advanced: true }),
      ...OUTPUT_FLAGS,
    },
  },
  doctor: {
    name: 'doctor',
    description: 'check for problems',
    args: { ...DIR, ...OUTPUT_FLAGS },
  },
} as const satisfies Record<string, CommandLine>

/** Programs of their own, which read their own flags. */
export const SCRIPT_WORDS = {
  image: 'build and push the container image of a release',
  deploy: 'deploy a release: to this host, from source, from npm, to a container, or to many hosts',
  trust: 'sign releases and manage the keys',
} as const

/** what each service's own command does too, with `--all` */
export const HOST_WORDS = {
  status: 'show which services are installed and running on this host',
  check: 'show status, and the latest release in each feed',
  upgrade: 'with --all, update every service on this host, one after another',
} as const

/** what comes after `deploy`, and the program that does it */
export const GROUNDS = {
  host: { description: 'install or upgrade on this host', program: 'deploy-systemd' },
  source: { description: 'build a tag from source, and deploy it to this host', program: 'deploy-source' },
  container: { description: 'deploy a release to a container', program: 'deploy-container' },
  npm: { description: 'install an npm package as a service, and keep it up to date', program: 'deploy-npm' },
  fleet: { description: 'update many hosts, in waves', program: 'deploy-fleet' },
} as const
