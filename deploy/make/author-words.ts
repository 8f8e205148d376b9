// The commands of `baton`: what each is for, and what may be typed behind it. Pure.

import { type CommandLine, DELTA_FLAGS, DURATION, type Flags, OUTPUT_FLAGS, SCRIPT_FLAGS, YES } from '../lib/flags.ts'
import { COMPRESSIONS } from './pack.ts'
import { RELEASES_FOLDER } from './project.ts'

const DIR = {
  dir: { type: 'string', valueHint: 'dir', default: '.', advanced: true, description: 'the application' },
} as const satisfies Flags
const OUT = {
  out: {
    type: 'string',
    valueHint: 'dir',
    advanced: true,
    description: `where release folders are (${RELEASES_FOLDER}/)`,
  },
} as const satisfies Flags
const TAG = { type: 'positional', required: false, description: 'the release, such as v1.1.0' } as const

/** Commands that this program carries out itself. */
export const OWN_WORDS = {
  init: {
    name: 'init',
    description: 'look at the application, write its configuration and the one line that embeds the agent',
    args: {
      ...DIR,
      service: { type: 'string', valueHint: 'name', description: 'of the service (default: as in package.json)' },
      try: {
        type: 'boolean',
        default: false,
        description: 'start the application once from source to detect its database and ports',
      },
      ...YES,
      ...SCRIPT_FLAGS,
    },
  },
  dev: {
    name: 'dev',
    description: 'serve from source, and reload on save without dropping connections',
    args: {
      ...DIR,
      port: { type: 'string', valueHint: 'number', description: 'where it listens (default: PORT, else `port`)' },
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
      kind: {
        type: 'string',
        valueHint: 'kind',
        advanced: true,
        description: 'app, bundle or script, instead of what the configuration says',
      },
      feed: { type: 'string', valueHint: 'feed', description: 'where installs look for the next release' },
      notes: { type: 'string', valueHint: 'text|file', description: 'release notes' },
      from: {
        type: 'string',
        valueHint: '>=1.4.0',
        advanced: true,
        description: 'the oldest release from which hosts may move to it',
      },
      security: {
        type: 'boolean',
        advanced: true,
        description: 'it closes a security hole: with a signed feed, hosts take it whatever `minAge` says',
      },
      compress: { type: 'string', valueHint: 'effort', default: 'normal', description: COMPRESSIONS.join(', ') },
      ...DELTA_FLAGS,
      make: { type: 'boolean', default: true, advanced: true, negativeDescription: 'do not run `build` first' },
      try: {
        type: 'boolean',
        default: true,
        former: 'check',
        negativeDescription: 'leave out its test: one start, and one switch to itself',
      },
      force: {
        type: 'boolean',
        default: false,
        advanced: true,
        description: 'replace a different release of the same tag',
      },
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
      to: { type: 'string', valueHint: 'target', description: '/folder, user@host:/folder or github:owner/name' },
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
      tag: { ...TAG, description: 'the release that is tried (the newest)' },
      ...DIR,
      ...OUT,
      from: {
        type: 'string',
        valueHint: 'vX.Y.Z',
        description: 'the release to update from, the one now in use (required)',
      },
      data: { type: 'string', valueHint: 'path', description: 'a database, or a state directory: it is copied' },
      'start-timeout': { ...DURATION, default: '60s', advanced: true, description: 'how long each start may take' },
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
