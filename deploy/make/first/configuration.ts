// Turns the installer's `config.json` into environment variables, whose names the author chose.
// Must hold: no message quotes the file, which holds the password. Only variables that the author asked for reach the environment.

import { readFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { type Configuration, readConfiguration } from '../../../agent/first.ts'
import { EXIT_USAGE, type OwnWords, refuse } from './release.ts'

/** The file may hold the author's own settings too: a member that Baton does not know is no fault. */
export function configurationIn(path: string): Configuration {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (cause) {
    const isImage = process.env['BATON_CONTAINER'] === '1'
    return refuse(
      `reading the configuration ${path}${isImage ? ' in the container' : ''}: ${cause instanceof Error ? cause.message : 'failed'}`,
      isImage ? `the mount at ${dirname(path)} must contain this file, readable by the container’s user` : null,
      EXIT_USAGE,
    )
  }
  const { configuration, faults } = readConfiguration(text)
  if (configuration.listen.length > 1) faults.push('expected one object in `listen`')
  if (faults.length > 0) return refuse(`the configuration ${path} is not valid: ${faults.join('; ')}`, null, EXIT_USAGE)
  return configuration
}

/** Values by name; `{name}` stands for one in a text of the author's. */
export type Fillings = Readonly<Record<string, string>>

export function fillingsOf(configuration: Configuration, path: string): Fillings {
  const { STATE_DIRECTORY = '' } = process.env // systemd's, or an image's
  const { listen, dashboard = {}, stateDirectory = STATE_DIRECTORY, feed = [], basePath = '' } = configuration
  const [{ host = '127.0.0.1', port = 8080, path: socket = '' } = {}] = listen
  return {
    host,
    port: String(port),
    path: socket,
    password: dashboard.password ?? '',
    config: path,
    stateDirectory,
    feed: feed[0] ?? '',
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
