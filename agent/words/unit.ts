// What an author asks of the unit of an install for the whole host (`unit` in `baton.config.json`), beyond its own folders. An operator sees it
// line by line and confirms it, before it is written into the unit. Pure.
// Must hold: an author is a stranger. What could reach beyond the service, or another line of the unit, is refused: other values than plain
// ones, folders of the system or of other services, files that root would read for it, devices and capabilities that are not in the list.

import { BatonError } from './errors.ts'
import { series } from './series.ts'
import { type Faults, formatUnknown, keep, type Setting } from './table.ts'
import { quoted } from './untrusted.ts'

export interface UnitWishes {
  readWritePaths?: string[]
  devices?: string[]
  capabilities?: string[]
  /** has systemd make `/run/<service>` */
  runtimeDirectory?: boolean
  environmentFile?: string
}

const CAPABILITIES = ['CAP_IPC_LOCK', 'CAP_NET_ADMIN', 'CAP_NET_BIND_SERVICE', 'CAP_NET_RAW', 'CAP_SYS_NICE'] as const

const texts = (maxLength: number): Setting => ({ type: 'array', items: { type: 'string', maxLength }, maxItems: 16 })

const UNIT = {
  type: 'object',
  properties: {
    readWritePaths: texts(256),
    devices: texts(128),
    capabilities: texts(64),
    runtimeDirectory: { type: 'boolean' },
    environmentFile: { type: 'string', maxLength: 256 },
  },
} as const satisfies Setting

/** neither white space, a quote nor `%`, which systemd would act upon; no part that is `.` or `..` */
const PLAIN = /^(\/(?!\.{1,2}(\/|$))[A-Za-z0-9@._+-]+)+$/
const DEVICE =
  /^\/dev\/(dri\/(card|renderD)\d{1,3}|tty(USB|ACM|AMA|S)\d{1,3}|serial\/by-id\/[A-Za-z0-9._-]+|video\d{1,3}|snd\/[A-Za-z0-9]+|i2c-\d{1,3}|spidev\d{1,2}\.\d{1,2}|gpiochip\d{1,3}|nvidia[a-z0-9-]*|kvm|net\/tun)$/

/** What of `value` may be asked for; null: nothing is. Throws refused that names every fault. */
export function wishesOf(value: unknown, service: string): UnitWishes | null {
  if (value === undefined || value === null) return null
  const faults = unitFaults(value, service)
  if (faults.length > 0)
    throw new BatonError('refused', `this release asks for unit settings that are not allowed: ${faults.join('; ')}`, {
      hint: 'only the author of the release can fix this; you can still extend the unit with your own drop-in',
    })
  const wishes = value as UnitWishes
  return linesOf(wishes, service).length === 0 ? null : wishes
}

/** A sentence each. */
export function unitFaults(value: unknown, service: string): string[] {
  const reading: Faults = { faults: [], unknown: [] }
  const kept = keep(UNIT, value, 'unit', reading)
  const faults = [...reading.faults, ...reading.unknown.map(formatUnknown)]
  if (kept === undefined) return faults
  const { readWritePaths = [], devices = [], capabilities = [], environmentFile } = kept as UnitWishes
  const check = (name: string, expected: string, given: readonly string[], isFit: (text: string) => boolean) => {
    for (const got of given)
      if (!isFit(got)) faults.push(`expected ${expected} in \`unit.${name}\`, got ${quoted(got)}`)
  }
  const own = ['lib', 'cache', 'log', 'spool'].map((name) => `/var/${name}/${service}`)
  const isWritable = (path: string) =>
    PLAIN.test(path) &&
    (/^\/(srv|mnt|media|data)\/[^/]/.test(path) || own.some((one) => path === one || path.startsWith(`${one}/`)))
  check(
    'readWritePaths',
    `paths made of letters, digits and \`._+@-\` under ${series(['/srv', '/mnt', '/media', '/data', ...own], 'or')}`,
    readWritePaths,
    isWritable,
  )
  check('devices', 'device nodes for graphics cards, serial ports, cameras or similar hardware', devices, (path) =>
    DEVICE.test(path),
  )
  const isKnown = (name: string) => CAPABILITIES.some((one) => one === name)
  check('capabilities', `one of ${CAPABILITIES.join(', ')}`, capabilities, isKnown)
  const files = environmentFile === undefined ? [] : [environmentFile]
  // root reads it, and the service is given what stands there
  const isOwn = (path: string) =>
    PLAIN.test(path) && path.startsWith(`/etc/${service}/`) && path.split('/').length === 4
  check('environmentFile', `a file in /etc/${service}/`, files, isOwn)
  return faults
}

/** What a person reads before they confirm it: `write access to /srv/media`. */
export function linesOf(wishes: UnitWishes, service: string): string[] {
  const { readWritePaths = [], devices = [], capabilities = [], runtimeDirectory = false, environmentFile } = wishes
  const untried = ' (not granted in trials)'
  return [
    ...readWritePaths.map((path) => `write access to ${path}${untried}`),
    ...devices.map((path) => `the device ${path}${untried}`),
    ...capabilities.map((name) => `the capability ${name}${untried}`),
    ...(runtimeDirectory ? [`its own folder /run/${service}`] : []),
    ...(environmentFile === undefined ? [] : [`the variables in ${environmentFile}${untried}`]),
  ]
}
