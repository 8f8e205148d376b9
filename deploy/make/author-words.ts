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
  dir: option('dir', 'the application', { default: '.', advanced: true }),
} as const satisfies Flags
const OUT = {
  out: option('dir', `where release folders are (${RELEASES_FOLDER}/)`, ADVANCED),
} as const satisfies Flags
const TAG = word('the release, such as v1.1.0')

/** Commands that this program carries out itself. */
export const OWN_WORDS = {
  init: {
    name: 'init',
    description: 'look at the application, write its configuration and the one line that embeds the agent',
    args: {
      ...DIR,
      service: option('name', 'of the service (default: as in package.json)'),
      try: flag('start the application once from source to detect its database and ports'),
      ...YES,
      ...SCRIPT_FLAGS,
    },
  },
  dev: {
    name: 'dev',
    description: 'serve from source, and reload on save without dropping connections',
    args: {
      ...DIR,
      port: option('number', 'where it listens (default: PORT, else `port`)'),
      watch: { type: 'boolean', default: true, negativeDescription: 'follow the feed only, not files' },
    },
  },
  build: {
    name: 'build',
    description: 'make a release',
    args: {
      tag: TAG,
      ...DIR,
      ...OUT,
      kind: option('kind', 'app, bundle or script, instead of what the configuration says', ADVANCED),
      feed: option('feed', 'where installs look for the next release'),
      notes: option('text|file', 'release notes'),
      from: option('>=1.4.0', 'the oldest release from which hosts may move to it', ADVANCED),
      security: flag('it closes a security hole: with a signed feed, hosts take it whatever `minAge` says', ADVANCED),
      compress: option('effort', COMPRESSIONS.join(', '), { default: 'normal' }),
      ...DELTA_FLAGS,
      make: { type: 'boolean', default: true, advanced: true, negativeDescription: 'do not run `build` first' },
      try: {
        type: 'boolean',
        default: true,
        former: 'check',
        negativeDescription: 'leave out its test: one start, and one switch to itself',
      },
      force: flag('replace a different release of the same tag', ADVANCED),
      ...SCRIPT_FLAGS,
    },
  },
  publish: {
    name: 'publish',
    description: 'copy a release to the place where installs find it',
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
    description: 'build native addons anew, for the Node that goes into a release',
    args: { ...DIR, ...SCRIPT_FLAGS },
  },
  trial: {
    name: 'trial',
    description: 'try a release on a copy of data, then the one before on what it leaves',
    args: {
      tag: word('the release that is tried (the newest)'),
      ...DIR,
      ...OUT,
      from: option('vX.Y.Z', 'the release to update from, the one now in use (required)'),
      data: option('path', 'a database, or a state directory: it is copied'),
      'start-timeout': duration('how long each start may take', { default: '60s', advanced: true }),
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
  image: 'make and push the container image of a release',
  deploy: 'deploy a release: to this host, from source, from npm, to a container, to many hosts',
  trust: 'sign what is published',
} as const

/** what each service's own command does too, with `--all` */
export const HOST_WORDS = {
  status: 'what is installed and running on this host: all services',
  check: 'status, and the latest release in each feed',
  upgrade: 'with --all: move every service of this host, one after the other',
} as const

/** what comes after `deploy`, and the program that does it */
export const GROUNDS = {
  host: { description: 'install or upgrade on this host', program: 'deploy-systemd' },
  source: { description: 'build a tag of this repository, and deploy that', program: 'deploy-source' },
  container: { description: 'a container of this Docker engine', program: 'deploy-container' },
  npm: { description: 'install a package of npm as a service, and keep it up to date', program: 'deploy-npm' },
  fleet: { description: 'many hosts, in waves', program: 'deploy-fleet' },
} as const
