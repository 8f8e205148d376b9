// Turns the installer's `config.json` into environment variables, whose names the author chose.
// Must hold: no message quotes the file, which holds the password. Only variables that the author asked for reach the environment.

import { readFileSync } from 'node:fs'
import type { InstallConfiguration } from '../../../agent/first.ts'
import { type OwnWords, refuse } from './release.ts'

const CONFIGURATION_MAX_BYTES = 256 * 1024
const DEFAULT_PORT = 8080

export function readConfiguration(path: string): InstallConfiguration {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (cause) {
    return refuse(`reading the configuration ${path}: ${cause instanceof Error ? cause.message : 'failed'}`)
  }
  if (text.length > CONFIGURATION_MAX_BYTES) {
    return refuse(`expected a configuration of at most ${CONFIGURATION_MAX_BYTES} bytes, got ${text.length} in ${path}`)
  }
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return refuse(`expected JSON in the configuration ${path}`)
  }
  const faults = faultsOf(value)
  if (faults.length > 0) return refuse(`the configuration ${path} is not valid: ${faults.join('; ')}`)
  return value as InstallConfiguration
}

/** Checks only the members that this file reads; further members belong to the operator. */
function faultsOf(value: unknown): string[] {
  if (!isRecord(value)) return ['expected an object']
  const faults: string[] = []
  const expect = (holds: boolean, fault: string) => void (holds || faults.push(fault))
  const { dashboard = {}, listen = {}, stateDirectory = '', basePath = '', feed = '', update = {} } = value
  expect(isRecord(dashboard), 'expected an object in `dashboard`')
  if (isRecord(dashboard)) {
    const { password = '' } = dashboard
    expect(typeof password === 'string', 'expected a text in `dashboard.password`')
  }
  expect(isRecord(listen), 'expected one object in `listen`')
  if (isRecord(listen)) {
    const { host = '', port = DEFAULT_PORT, path = '' } = listen
    expect(typeof host === 'string', 'expected a text in `listen.host`')
    expect(typeof path === 'string', 'expected a text in `listen.path`')
    expect(Number.isInteger(port) && Number(port) >= 0 && Number(port) <= 65535, 'expected 0 to 65535 in `listen.port`')
  }
  for (const [name, text] of Object.entries({ stateDirectory, basePath, feed }))
    expect(typeof text === 'string', `expected a text in \`${name}\``)
  expect(isRecord(update), 'expected an object in `update`')
  return faults
}

/** Values by the name in braces that stands for each in a text of the author's. */
export type Fillings = Readonly<Record<string, string>>

export function fillingsOf(configuration: InstallConfiguration, path: string): Fillings {
  const { STATE_DIRECTORY = '' } = process.env // systemd's, or an image's
  const { listen = {}, dashboard = {}, stateDirectory = STATE_DIRECTORY, feed = '', basePath = '' } = configuration
  return {
    host: listen.host ?? '127.0.0.1',
    port: String(listen.port ?? DEFAULT_PORT),
    path: listen.path ?? '',
    password: dashboard.password ?? '',
    config: path,
    stateDirectory,
    feed,
    basePath,
  }
}

/** The variables that the author asked for, in this process's environment. */
export function setEnvironment({ environment }: OwnWords, values: Fillings): void {
  for (const [name, text] of Object.entries(environment)) process.env[name] = filled(text, values)
}

/** `text` with values for `{port}` and the like; a name that is not known stays as it is. */
export function filled(text: string, values: Fillings): string {
  return text.replaceAll(/\{(\w+)\}/g, (whole, key: string) =>
    Object.hasOwn(values, key) ? (values[key] ?? whole) : whole,
  )
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}
