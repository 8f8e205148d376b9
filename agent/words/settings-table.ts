// The settings of an installed service: every member of its `config.json`, as a JSON Schema. `configuration.ts` reads the file by it,
// `policy.ts` the rules of the schedule in it, and `npm run pages` makes settings.schema.json and docs/reference/settings.md from it.

import { BUSY, PASSWORD_HEADERS, REHEARSE_MODES, TIME_SETTINGS, UPDATE_BOUNDS } from './bounds.ts'
import { DAY_MS, durationText } from './duration.ts'
import { CHANNELS, SOURCES_MAX } from './feed-choice.ts'
import { TAG } from './release.ts'
import { SCRATCH, SNAPSHOT } from './snapshot.ts'
import { ALLOWANCES, DAYS, MODES } from './schedule.ts'
import type { Setting } from './table.ts'

export const LISTENERS_MAX = 16

/** Without control characters. */
const PLAIN = '^[^\\u0000-\\u001f\\u007f-\\u009f]*$'

const path = (description: string, maxLength = 4096): Setting => ({
  type: 'string',
  minLength: 1,
  maxLength,
  pattern: PLAIN,
  form: 'text without control characters',
  description,
})

const time = (name: keyof typeof TIME_SETTINGS, description: string): Setting => {
  const [lowest, highest, normal] = UPDATE_BOUNDS[TIME_SETTINGS[name]]
  return { type: 'string', timeMs: [lowest, highest], default: durationText(normal), description }
}

/** One address to listen on. Also `path` alone. */
export const LISTENER = {
  type: 'object',
  properties: {
    host: {
      isUsual: true,
      type: 'string',
      pattern: '^[A-Za-z0-9.:_%-]{1,255}$',
      form: 'a host name or an address',
      default: '127.0.0.1',
      description: 'name or address of this host; `0.0.0.0` and `::` are every address',
    },
    port: {
      isUsual: true,
      type: 'integer',
      minimum: 0,
      maximum: 65_535,
      default: 8080,
      description: '0: any free port',
    },
    path: path('a unix socket, instead of `host` and `port`', 1024),
    mode: {
      type: 'string',
      pattern: '^0?[0-7]{3}$',
      form: 'three octal digits, such as `0660`',
      description: "permissions of the unix socket, after a stop and a start; default: the author's, or `0660`",
    },
    group: {
      type: 'string',
      pattern: '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$',
      form: 'group name or ID',
      description:
        "the group that owns the unix socket, for example the proxy's. The service's user must be a member of it: use `SupplementaryGroups=` in a systemd drop-in, or `usermod -aG`",
    },
    tls: {
      type: 'object',
      properties: { key: path('path of a PEM file'), cert: path('path of a PEM file, the whole chain') },
      required: ['key', 'cert'],
      description: 'makes it https, in a service that reads it',
    },
  },
} as const satisfies Setting

/** `update.auto`, and without `allow` the panel's `update/policy.json`. */
export const RULES = {
  type: 'object',
  description: 'automatic updates',
  properties: {
    mode: {
      isUsual: true,
      type: 'string',
      enum: MODES,
      default: 'notify',
      description: 'which releases are installed automatically',
    },
    days: {
      type: 'array',
      items: { type: 'string', enum: DAYS },
      minItems: 1,
      maxItems: 7,
      description: 'default: every day',
    },
    hours: {
      type: 'string',
      pattern: '^\\d\\d:\\d\\d-\\d\\d:\\d\\d$',
      form: 'hours such as `02:00-05:00`',
      description: '`22:00-05:00` is over midnight; default: the whole day',
    },
    zone: {
      type: 'string',
      pattern: '^[A-Za-z][A-Za-z0-9_+/-]{1,63}$',
      form: 'a time zone such as `Europe/Berlin`',
      description: "of `days` and `hours`; default: the host's",
    },
    minAge: {
      type: 'string',
      timeMs: [0, 365 * DAY_MS],
      description: 'how long ago a release must have been published',
    },
    jitter: {
      type: 'string',
      timeMs: [0, DAY_MS],
      description: 'how far hosts are spread after the moment at which all of them could update',
    },
    pauseUntil: {
      type: 'string',
      pattern: '^\\d{4}-\\d\\d-\\d\\d',
      form: 'a day such as `2026-12-27` or a time with an offset',
      description: 'nothing is installed automatically before it',
    },
    skip: {
      type: 'string',
      pattern: TAG.source,
      form: 'a tag of the form vX.Y.Z',
      description: 'a tag that is never installed automatically',
    },
    allow: {
      type: 'array',
      items: { type: 'string', enum: ALLOWANCES },
      maxItems: ALLOWANCES.length,
      description: 'which of these are installed automatically too',
    },
  },
} as const satisfies Setting

const UPDATE: Readonly<Record<string, Setting>> = {
  probation: time(
    'probation',
    'how long a new release must prove itself. Start-first, the old process keeps its connections for the first half of it',
  ),
  drainTimeout: time(
    'drainTimeout',
    'how long connections that cannot move may take to end. Start-first, a response that still moves bytes may take twice its age, up to 10m',
  ),
  readyTimeout: time(
    'readyTimeout',
    'how long a new release may take until it serves, its migration included. Stop-first, clients wait that long for a release ' +
      'that never serves, and as long again for the old one: lower it to what your start needs',
  ),
  stopTimeout: time('stopTimeout', "how long the author's `onStop` may take. Stop-first, clients wait for it"),
  hangTimeout: time('hangTimeout', 'how long a new release may give no sign of life before it counts as hung'),
  quietTimeout: time(
    'quietTimeout',
    'stop-first: how long requests may take to end once nothing new is read; else the old process serves on and tries again ' +
      '10 s later, three times in all, a rollback once',
  ),
  busy: {
    type: 'string',
    enum: BUSY,
    description:
      'what happens to work that does not end within `busyMax`, and, stop-first, to requests after the last try: `cut` ends it, and counts the requests; ' +
      '`give-up` ends the update as `failed` (`busy`, exit 7). Default: `cut`, and `give-up` for an automatic update, until it has given up five times. A rollback always cuts',
  },
  busyMax: time(
    'busyMax',
    'how long a switch waits for the work that the application has said is under way (`agent.busy`), before anything is swapped. Then `busy` decides. ' +
      'A person may go on at once: `upgrade --now`',
  ),
  maxPause: time(
    'maxPause',
    'stop-first: an update that is expected to make clients wait longer is refused (`refused`, exit 7). What is expected is the ' +
      'start that the trial has measured, else that of the last two switches (the shorter; one alone refuses nothing), and the last stop; a rollback is never refused. ' +
      'It ends no pause that turns out longer: `stopTimeout` and `readyTimeout` do',
  ),
  trial: {
    type: 'string',
    enum: REHEARSE_MODES,
    default: REHEARSE_MODES[0],
    isCheckedLater: true,
    description: 'whether a release is tried on a copy of the data first; `auto`: up to 1 GiB of database',
  },
  snapshot: {
    ...SNAPSHOT,
    isCheckedLater: true,
    description: "how data that are not in SQLite are copied before a switch; each member replaces the author's",
  },
  scratch: {
    ...SCRATCH,
    isCheckedLater: true,
    description: 'a scratch database, in which a release is tried on what `snapshot` has copied',
  },
  auto: { ...RULES, isCheckedLater: true },
  onOutcome: {
    type: 'array',
    items: { type: 'string', maxLength: 4096 },
    minItems: 1,
    maxItems: 32,
    isCheckedLater: true,
    description: 'a program and its arguments: it gets a report on its standard input after each operation',
  },
}

export const SETTINGS = {
  type: 'object',
  properties: {
    dashboard: {
      type: 'object',
      properties: {
        password: {
          isUsual: true,
          type: 'string',
          maxLength: 1024,
          pattern: '^[!-~]*$',
          form: 'visible ASCII characters without spaces',
          description:
            'what the panel asks for, and `Authorization: Bearer`; without one the update endpoints are closed (403)',
        },
        passwordHeader: {
          type: 'string',
          enum: PASSWORD_HEADERS,
          default: PASSWORD_HEADERS[0],
          description:
            '`x-baton-authorization`, behind a proxy that uses `Authorization` itself: that header is read too, and the panel sends only that',
        },
        trustedProxy: {
          type: 'object',
          properties: {
            from: {
              type: 'array',
              items: { type: 'string', maxLength: 64 },
              minItems: 1,
              maxItems: 64,
              description: 'addresses, networks such as `10.0.0.0/8`, or `unix`',
            },
            header: {
              type: 'string',
              pattern: '^[A-Za-z0-9-]{1,64}$',
              form: 'the name of a header',
              description: 'in which the proxy names the client: `x-forwarded-for`, `forwarded`, `x-real-ip`, …',
            },
          },
          required: ['from', 'header'],
          description: "a proxy that may name the client's address",
        },
      },
    },
    listen: {
      type: 'array',
      items: LISTENER,
      minItems: 1,
      maxItems: LISTENERS_MAX,
      description: 'where it listens: one address, or a list if the service takes several',
    },
    basePath: {
      type: 'string',
      pattern: '^/?$|^(/[A-Za-z0-9._~-]{1,64}){1,8}$',
      form: 'a path such as `/tools`',
      default: '',
      description: 'prefix of `/admin` and `/web`',
    },
    stateDirectory: path(
      "where the service's data is; default: the installer's, `$STATE_DIRECTORY`, or the user's own",
    ),
    feed: {
      type: 'array',
      items: path('a source'),
      minItems: 1,
      maxItems: SOURCES_MAX,
      description: 'where releases come from, and mirrors; default: the feed of the install',
      isUsual: true,
    },
    channel: {
      type: 'string',
      enum: CHANNELS,
      default: CHANNELS[0],
      description: '`beta`: prereleases too',
    },
    downloadPrefix: path('put before the addresses of GitHub’s downloads'),
    update: { type: 'object', properties: UPDATE },
  },
} as const satisfies Setting
