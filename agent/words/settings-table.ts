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

/** without control characters */
const PLAIN = '^[^\\u0000-\\u001f\\u007f-\\u009f]*$'

/** of a setting that may be any text */
export const PLAIN_FORM = 'non-empty text without control characters'

const path = (description: string, maxLength = 4096): Setting => ({
  type: 'string',
  minLength: 1,
  maxLength,
  pattern: PLAIN,
  form: PLAIN_FORM,
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
      description: 'where the service listens; `0.0.0.0` and `::` mean every address',
    },
    port: {
      isUsual: true,
      type: 'integer',
      minimum: 0,
      maximum: 65_535,
      default: 8080,
      description: '0 means any free port',
    },
    path: path('a unix socket, instead of `host` and `port`', 1024),
    mode: {
      type: 'string',
      pattern: '^0?[0-7]{3}$',
      form: 'three octal digits, with or without a leading 0, such as `0660`',
      description:
        "permissions of the unix socket (takes effect after a stop and start); default: the author's, or `0660`",
    },
    group: {
      type: 'string',
      pattern: '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$',
      form: 'group name or ID',
      description:
        "group of the unix socket, such as the proxy's. The service's user must be a member: set `SupplementaryGroups=` in a systemd drop-in, or use `usermod -aG`",
    },
    tls: {
      type: 'object',
      properties: { key: path('private key (PEM)'), cert: path('certificate chain (PEM)') },
      required: ['key', 'cert'],
      description: 'HTTPS, if the service supports this setting',
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
      description: 'when updates may be installed; `22:00-05:00` spans midnight; default: always',
    },
    zone: {
      type: 'string',
      pattern: '^[A-Za-z][A-Za-z0-9_+/-]{1,63}$',
      form: 'a time zone such as `Europe/Berlin`',
      description: "time zone for `days` and `hours`; default: the host's",
    },
    minAge: {
      type: 'string',
      timeMs: [0, 365 * DAY_MS],
      description: 'minimum age of a release before it is installed',
    },
    jitter: {
      type: 'string',
      timeMs: [0, DAY_MS],
      description: 'maximum delay before an update; each host has its own delay',
    },
    pauseUntil: {
      type: 'string',
      pattern: '^\\d{4}-\\d\\d-\\d\\d',
      form: 'a date such as `2026-12-27`, or a date and time with a UTC offset',
      description: 'no automatic updates before this time',
    },
    skip: {
      type: 'string',
      pattern: TAG.source,
      form: 'a tag of the form vX.Y.Z',
      description: 'a release that is never installed automatically',
    },
    allow: {
      type: 'array',
      items: { type: 'string', enum: ALLOWANCES },
      maxItems: ALLOWANCES.length,
      description: 'kinds of releases that are installed automatically only if listed here',
    },
  },
} as const satisfies Setting

const UPDATE: Readonly<Record<string, Setting>> = {
  probation: time(
    'probation',
    'how long a new release must stay healthy. With start-first, the old process keeps its connections for the first half of that time',
  ),
  drainTimeout: time(
    'drainTimeout',
    'how long connections that cannot be handed to the new process may take to close. With start-first, a response that is still transferring data gets as much additional time as it has already taken, at most 10m',
  ),
  readyTimeout: time(
    'readyTimeout',
    'how long a new release may take to start serving, including its migration. With stop-first, clients wait this long for a release that ' +
      'never serves, then up to as long again for the old one: set this no higher than needed',
  ),
  stopTimeout: time('stopTimeout', "how long the author's `onStop` may take. With stop-first, clients wait for it"),
  hangTimeout: time('hangTimeout', 'how long a new release may be unresponsive before it counts as hung'),
  quietTimeout: time(
    'quietTimeout',
    'with stop-first, how long open requests may take to finish; if they take longer, the old process resumes serving and the switch is ' +
      'retried 10 s later, at most three attempts in total (one for a rollback)',
  ),
  busy: {
    type: 'string',
    enum: BUSY,
    description:
      'what to do if work is still running after `busyMax` or, with stop-first, requests are still open at the last attempt. `cut`: end the work and the requests, and report how many of each. ' +
      '`give-up`: the update fails (`failed`, exit 7). Default: `cut`; automatic updates give up the first five times. A rollback always uses `cut`',
  },
  busyMax: time(
    'busyMax',
    'how long a switch waits for work that the application reports (`agent.busy`) before it changes anything; after that, `busy` ' +
      'decides. `upgrade --now` skips the wait',
  ),
  maxPause: time(
    'maxPause',
    'with stop-first, an update is refused (exit 7) if clients are expected to wait longer than this; rollbacks are never refused for this reason. The expected wait is how ' +
      'long the last stop took plus how long the start in the trial took (without a trial: the shorter of the last two starts). ' +
      'Only `stopTimeout` and `readyTimeout` limit the actual pause',
  ),
  trial: {
    type: 'string',
    enum: REHEARSE_MODES,
    default: REHEARSE_MODES[0],
    isCheckedLater: true,
    description: 'whether a release is first tried on a copy of the data; `auto`: if the database is at most 1 GiB',
  },
  snapshot: {
    ...SNAPSHOT,
    isCheckedLater: true,
    description: "how data outside SQLite is copied; each field overrides the author's setting",
  },
  scratch: {
    ...SCRATCH,
    isCheckedLater: true,
    description: 'a scratch database into which the snapshot is loaded when a release is tried',
  },
  auto: { ...RULES, isCheckedLater: true },
  onOutcome: {
    type: 'array',
    items: { type: 'string', maxLength: 4096 },
    minItems: 1,
    maxItems: 32,
    isCheckedLater: true,
    description: 'program, with its arguments, to run after each operation; it gets a report on standard input',
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
            'password for the panel and for `Authorization: Bearer`; without one, the update endpoints are closed (403)',
        },
        passwordHeader: {
          type: 'string',
          enum: PASSWORD_HEADERS,
          default: PASSWORD_HEADERS[0],
          description:
            'set `x-baton-authorization` if a proxy uses `Authorization` itself: the service then reads both headers, and the panel sends only `x-baton-authorization`',
        },
        trustedProxy: {
          type: 'object',
          properties: {
            from: {
              type: 'array',
              items: { type: 'string', maxLength: 64 },
              minItems: 1,
              maxItems: 64,
              description: 'addresses, networks such as `10.0.0.0/8`, or `unix` for unix sockets',
            },
            header: {
              type: 'string',
              pattern: '^[A-Za-z0-9-]{1,64}$',
              form: 'the name of a header',
              description: 'header that contains the client’s address: `x-forwarded-for`, `forwarded`, `x-real-ip`, …',
            },
          },
          required: ['from', 'header'],
          description: "a proxy trusted to report the client's address",
        },
      },
    },
    listen: {
      type: 'array',
      items: LISTENER,
      minItems: 1,
      maxItems: LISTENERS_MAX,
      description: 'where the service listens: an address, or a list if it supports several',
    },
    basePath: {
      type: 'string',
      pattern: '^/?$|^(/[A-Za-z0-9._~-]{1,64}){1,8}$',
      form: 'a path such as `/tools`',
      default: '',
      description: 'path prefix for `/admin` and `/web`',
    },
    stateDirectory: path(
      "where the service's data is; default: the installer's choice, `$STATE_DIRECTORY`, or the user's home",
    ),
    feed: {
      type: 'array',
      items: path('a source'),
      minItems: 1,
      maxItems: SOURCES_MAX,
      description: 'where releases come from, then any mirrors; default: the feed it was installed from',
      isUsual: true,
    },
    channel: {
      type: 'string',
      enum: CHANNELS,
      default: CHANNELS[0],
      description: '`beta` includes prereleases',
    },
    downloadPrefix: path('prefix for GitHub download URLs'),
    update: { type: 'object', properties: UPDATE },
  },
} as const satisfies Setting
