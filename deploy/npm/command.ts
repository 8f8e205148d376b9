// What may be typed behind `deploy-npm.sh`.

import { DURATION, type Flags, IRREVERSIBLE_FLAG, SCRIPT_FLAGS, WAITING_FLAGS, YES } from '../lib/flags.ts'

export const ARGUMENTS = {
  package: {
    type: 'positional',
    required: false,
    description: 'package name, optionally with a version range: `node-red`, `node-red@4`',
  },
  release: { type: 'string', valueHint: 'X.Y.Z|latest', default: 'latest', description: 'the version' },
  name: { type: 'string', valueHint: 'name', description: "of the service (the package's)" },
  recipe: {
    type: 'string',
    valueHint: 'file',
    description: "how it is started, and where its data lie (default: Baton's own recipe)",
  },
  'allow-scripts': {
    advanced: true,
    type: 'string',
    valueHint: 'names',
    description: 'packages whose install scripts may run',
  },
  listen: { type: 'string', valueHint: 'host:port', description: 'for a first install: where the service listens' },
  'build-only': {
    advanced: true,
    type: 'boolean',
    default: false,
    description: 'put the release into the folder, install nothing',
  },
  dir: { advanced: true, type: 'string', valueHint: 'dir', description: 'the folder of releases' },
  update: {
    type: 'boolean',
    default: false,
    description: 'look for newer versions of all services that came from npm, or of `--name`',
  },
  'min-age': {
    advanced: true,
    ...DURATION,
    valueHint: '3d',
    description: 'how old a version must be before `--update` takes it (3d)',
  },
  timer: { advanced: true, type: 'boolean', default: true, negativeDescription: 'do not look for newer versions' },
  service: { advanced: true, type: 'boolean', negativeDescription: 'for a first install: without systemd' },
  adopt: {
    type: 'boolean',
    default: false,
    advanced: true,
    description: 'take the data over from a unit, pm2 or `npm -g`, which is stopped and stays installed',
  },
  data: {
    type: 'string',
    valueHint: 'dir',
    advanced: true,
    description: 'with --adopt: where it keeps its data (default: as the recipe says)',
  },
  ...YES,
  home: { type: 'string', valueHint: 'dir', advanced: true, description: 'where releases are made' },
  kit: { type: 'string', valueHint: 'file', advanced: true, description: 'the package that `npm run pack` makes' },
  [IRREVERSIBLE_FLAG]: {
    type: 'boolean',
    default: false,
    advanced: true,
    description: 'allow an update that cannot be rolled back',
  },
  ...WAITING_FLAGS,
  ...SCRIPT_FLAGS,
} as const satisfies Flags
