// The arguments of `embed()`: checked once, every fault reported at once, and frozen. Times are text here, and milliseconds from here on.

import { isAbsolute, join } from 'node:path'
import type { Authorize } from './http/admit.ts'
import { type TrustedProxy, trustedProxyFault } from './http/trusted-proxy.ts'
import { BUSY, type Busy, PASSWORD_HEADERS, type PasswordHeader, TIME_SETTINGS, UPDATE_BOUNDS } from './words/bounds.ts'
import { type Duration, durationFault, msOf } from './words/duration.ts'
import { BatonError } from './words/errors.ts'
import { type Log, logToStdout } from './log.ts'
import { ownRelease, ownStart, ownStateDirectory } from './own.ts'
import type { FeedChoice, ReleaseChannel } from './words/feed-choice.ts'
import { isService, isTag, SERVICE_MAX, type Anchor } from './words/release.ts'
import { type Order, ORDERS } from './words/order.ts'

/** Times such as `500ms`, `30s`, `5m`. docs/reference/settings.md has the bounds. */
export interface UpdateSettings {
  /** that a successor must prove itself before it is committed; default `30s` */
  probation?: Duration
  /** that a successor may take until it is ready; default `1m` */
  readyTimeout?: Duration
  /** that connections which cannot move may take to end; default `30s` */
  drainTimeout?: Duration
  /** that the author's `onStop` may take before the process exits anyway; default `10s` */
  stopTimeout?: Duration
  /** of silence after which a successor in probation counts as hung; default `5s` */
  hangTimeout?: Duration
  /** stop-first: that requests may take to end once nothing new is read; default `2s` */
  quietTimeout?: Duration
  /** stop-first: an update that is expected to make clients wait longer is refused; default `15s` */
  maxPause?: Duration
}

/** The same, in milliseconds. */
type TimesMs = Record<keyof typeof UPDATE_BOUNDS, number>

/**
 * Why this process ends. `handover`: the next release serves on. `stop`: the service ends. `revert`: this new release could not
 * take over, and the previous one serves on. A successor that fails its probation is killed, without a call of `onStop`.
 */
export type StopReason = 'handover' | 'stop' | 'revert'

export interface EmbedOptions {
  /** name of the service, its executable, its assets and its database; default: the release's */
  service?: string
  /** this process's tag, `vX.Y.Z`; default: the release's */
  tag?: string
  /** the setting `dashboard.password`; null or empty keeps every endpoint closed (403); default: the installer's configuration */
  password?: string | null
  /**
   * `github:owner/name`, `github:owner/name@https://base/api`, `https://host/folder/` or a path; a list: mirrors behind the first; null:
   * the receipt's; default: the installer's configuration
   */
  feed?: string | readonly string[] | null
  /** `beta`: takes prereleases too; default: the setting `channel`, or `stable` */
  channel?: ReleaseChannel
  /** before the address of a download from GitHub; default: the setting of that name, or none */
  downloadPrefix?: string
  /**
   * absolute; the agent keeps its journal, lock and snapshots in `update/` below it;
   * default: the installer's, or `$STATE_DIRECTORY`, or the user's own
   */
  stateDirectory?: string
  /** absolute path of the SQLite database to snapshot before a swap; default: the release's, or none */
  database?: string | null
  /** path on the service's own server that answers 2xx if it is healthy, e.g. `/healthz`; default: the release's, or none */
  healthPath?: string | null
  /** absolute path of the executable; default: this process's, if Baton built it, else unmanaged */
  executable?: string | null
  /** proxies that may name the client's address, for the throttle of wrong passwords; default: none */
  trustedProxy?: TrustedProxy | null
  /**
   * `x-baton-authorization`: the password may come in this header too, behind a proxy that uses `Authorization` itself. Default: the
   * setting `dashboard.passwordHeader`, or `authorization`
   */
  passwordHeader?: PasswordHeader
  /**
   * The application's own login: whether this request may see the status and update. It is asked for each request without the password, and has
   * ten seconds. Only `true` lets it pass, and only for a page of this service. Null: it has nothing to say. Default: only the password counts
   */
  authorize?: Authorize
  /** prefix of every path of the agent, such as `/tools`; default: none */
  basePath?: string
  /** the root of the signed feed; default: the release's, or null: not signed */
  trust?: Anchor | null
  update?: UpdateSettings
  /**
   * `stop-first`: no two processes of this application ever live at once; `start-first`: two releases may serve side by side for a
   * while. Default: the release's, which is `stop-first` unless its author said otherwise
   */
  order?: Order
  /**
   * stop-first: what becomes of requests that still run after three attempts to find a quiet moment. `cut`: they are closed and
   * counted; `give-up`: the update ends with the code `busy`. Default: `update.busy` of the installer's configuration, or `give-up` for
   * an automatic update and `cut` for one that a person asks for
   */
  busy?: Busy
  /** called when this process stops accepting: end what cannot move (WebSockets, long streams) */
  onDrain?: () => void
  /**
   * called when this process accepts again after `onDrain`, because the next release was reverted: restart what `onDrain` ended
   */
  onResume?: () => void
  /** called last before this process exits: close the database */
  onStop?: (reason: StopReason) => void | Promise<void>
  log?: Log
}

type Others = 'channel' | 'downloadPrefix' | 'executable' | 'authorize' | 'update' | 'busy'

export interface Settings extends Readonly<Required<Omit<EmbedOptions, Others>>> {
  /** the other members of where releases are looked for */
  readonly choice: Omit<FeedChoice, 'feed'>
  readonly executable: string | null | undefined
  readonly authorize: Authorize | null
  readonly update: Readonly<TimesMs>
  /** null: as `busy` of EmbedOptions says */
  readonly busy: Busy | null
}

/** The settings, or BatonError invalid_settings that names every fault. */
export function readSettings(options: EmbedOptions = {}): Settings {
  const faults: string[] = []
  const expect = (holds: boolean, fault: string) => void (holds || faults.push(fault))
  const { service, tag, password, feed, stateDirectory, healthPath, database, basePath } = withDefaults(options)
  expect(
    isService(service),
    `\`service\`: expected a name made of a-z, 0-9 and -, with at most ${SERVICE_MAX} characters, got ${show(service)}`,
  )
  expect(isTag(tag), `\`tag\`: expected the form vX.Y.Z, got ${show(tag)}`)
  expect(password === null || typeof password === 'string', '`password`: expected a string or null')
  const isFeed = [feed].flat().every((one) => typeof one === 'string' && one !== '')
  expect(feed === null || isFeed, '`feed`: expected a feed address, a list of them, or null')
  for (const [key, path] of Object.entries({ stateDirectory, database, executable: options.executable }))
    expect((path ?? null) === null || isPath(path), `\`${key}\`: expected an absolute path, got ${show(path)}`)
  expectPaths(healthPath, basePath, expect)
  const { authorize } = options
  expect(authorize === undefined || typeof authorize === 'function', '`authorize`: expected a function')
  const { order = ownRelease().order } = options
  expect(ORDERS.includes(order), `\`order\`: expected ${ORDERS.join(' or ')}, got ${show(order)}`)
  const { dashboard, update: configured, ...start } = ownStart()?.configuration ?? {}
  const trustedProxy = options.trustedProxy ?? dashboard?.trustedProxy ?? null
  const proxyFault = trustedProxy === null ? null : trustedProxyFault(trustedProxy)
  expect(proxyFault === null, `\`trustedProxy\`: ${proxyFault}`)
  const { channel = start.channel, downloadPrefix = start.downloadPrefix } = options
  const busy = readOne(BUSY, ['busy', options.busy], ['update.busy', configured?.['busy']], expect)
  const header = ['dashboard.passwordHeader', dashboard?.passwordHeader] as const
  const sent = readOne(PASSWORD_HEADERS, ['passwordHeader', options.passwordHeader], header, expect)
  const update = readUpdateSettings(options.update, expect)
  if (faults.length > 0) throw new BatonError('invalid_settings', faults.join('; '))
  return Object.freeze({
    service,
    tag,
    password: password === '' ? null : password,
    feed,
    choice: { channel, downloadPrefix },
    stateDirectory,
    database,
    healthPath,
    executable: options.executable,
    trustedProxy,
    passwordHeader: sent ?? PASSWORD_HEADERS[0],
    authorize: options.authorize ?? null,
    basePath,
    trust: options.trust === undefined ? ownRelease().trust : options.trust,
    update: Object.freeze(update),
    order,
    busy,
    onDrain: options.onDrain ?? (() => {}),
    onResume: options.onResume ?? (() => {}),
    onStop: options.onStop ?? (() => {}),
    log: options.log ?? logToStdout,
  })
}

function expectPaths(
  healthPath: string | null,
  basePath: string,
  expect: (holds: boolean, fault: string) => void,
): void {
  expect(
    healthPath === null || (typeof healthPath === 'string' && healthPath.startsWith('/')),
    `\`healthPath\`: expected a path that begins with /, got ${show(healthPath)}`,
  )
  expect(
    basePath === '' || /^(\/[A-Za-z0-9._~-]+)+$/.test(basePath),
    `\`basePath\`: expected / followed by a name, got ${show(basePath)}`,
  )
}

function readUpdateSettings(
  given: UpdateSettings | undefined,
  expect: (holds: boolean, fault: string) => void,
): TimesMs {
  const configured = ownStart()?.configuration?.update
  const read = (name: keyof UpdateSettings): number => {
    const [lowest, highest, normal] = UPDATE_BOUNDS[TIME_SETTINGS[name]]
    const value = given?.[name] ?? configured?.[name]
    if (value === undefined) return normal
    const fault = durationFault(value, [lowest, highest])
    expect(fault === null, `\`update.${name}\`: expected ${fault}, got ${show(value)}`)
    return msOf(value)
  }
  const names = Object.keys(TIME_SETTINGS) as (keyof UpdateSettings)[]
  return Object.fromEntries(names.map((name) => [TIME_SETTINGS[name], read(name)])) as TimesMs
}

/** What the author gives, else what the operator has configured, else null. */
function readOne<T extends string>(
  all: readonly T[],
  given: readonly [name: string, value: unknown],
  configured: readonly [name: string, value: unknown],
  expect: (holds: boolean, fault: string) => void,
): T | null {
  const [name, value] = given[1] === undefined ? configured : given
  const found = all.find((one) => one === value)
  expect(value === undefined || found !== undefined, `\`${name}\`: expected ${all.join(' or ')}, got ${show(value)}`)
  return found ?? null
}

type Defaulted = 'service' | 'tag' | 'password' | 'feed' | 'stateDirectory' | 'healthPath' | 'database' | 'basePath'

/** Fills in what the author leaves out, from the release and from how it was started. */
function withDefaults(options: EmbedOptions): Pick<Settings, Defaulted> {
  const release = ownRelease()
  const configuration = ownStart()?.configuration ?? null
  const service = options.service ?? release.service
  const stateDirectory = options.stateDirectory ?? ownStateDirectory(service)
  const database = release.database === null ? null : join(stateDirectory, release.database)
  return {
    service,
    tag: options.tag ?? release.tag,
    password: options.password === undefined ? (configuration?.dashboard?.password ?? null) : options.password,
    feed: options.feed === undefined ? (configuration?.feed ?? null) : options.feed,
    stateDirectory,
    healthPath: options.healthPath === undefined ? release.healthPath : options.healthPath,
    database: options.database === undefined ? database : options.database,
    // the installer copies the author's `basePath` into the configuration; from then on the operator decides
    basePath: options.basePath ?? (configuration === null ? release.basePath : configuration.basePath) ?? '',
  }
}

function show(value: unknown): string {
  return (JSON.stringify(value) ?? String(value)).slice(0, 80)
}

/** An author of JavaScript may give anything. */
function isPath(value: unknown): boolean {
  return typeof value === 'string' && isAbsolute(value)
}
