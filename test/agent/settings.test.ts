// What an author gives to `embed()`.

import { noteStart } from '../../agent/own.ts'
import { type EmbedOptions, readSettings } from '../../agent/settings.ts'
import { type Busy, TIME_SETTINGS, UPDATE_BOUNDS } from '../../agent/words/bounds.ts'
import { durationText } from '../../agent/words/duration.ts'
import { equal, is, ok, throws, withCode } from '../assert.ts'
import { suite } from '../suite.ts'

const LEAST: EmbedOptions = {
  service: 'beacon',
  tag: 'v1.0.0',
  password: 'x',
  feed: null,
  stateDirectory: '/var/lib/b',
}

const test = suite('settings')

test('have a default for all that is not asked for, and are frozen', () => {
  const settings = readSettings(LEAST)
  equal(settings.update, {
    probationMs: 30_000,
    readyMs: 60_000,
    drainMs: 30_000,
    hangMs: 5_000,
    stopMs: 10_000,
    quietMs: 2_000,
    maxPauseMs: 15_000,
    busyMaxMs: 600_000,
  })
  equal([settings.order, settings.busy], ['stop-first', null])
  equal([settings.database, settings.healthPath, settings.basePath], [null, null, ''])
  ok(Object.isFrozen(settings) && Object.isFrozen(settings.update))
  settings.onDrain()
})

test('an empty password is none: it must never be a password that anybody can guess', () => {
  is(readSettings({ ...LEAST, password: '' }).password, null)
  is(readSettings({ ...LEAST, password: null }).password, null)
})

test('each time is taken within its bounds, and refused beyond', () => {
  for (const [name, inside] of Object.entries(TIME_SETTINGS)) {
    const [lowest, highest] = UPDATE_BOUNDS[inside]
    for (const ms of [lowest, highest])
      is(readSettings({ ...LEAST, update: { [name]: durationText(ms) } }).update[inside], ms)
    for (const value of [`${lowest - 1}ms`, `${highest / 1000 + 1}s`, '1.5s', '5', 5, NaN, '', ' 5s']) {
      const { message } = throws(
        () => readSettings({ ...LEAST, update: { [name]: value } }),
        withCode('invalid_settings'),
      )
      ok(message.includes(`update.${name}`), message)
    }
  }
})

test('every fault is told at once', () => {
  const wrong = {
    service: 'Beacon!',
    tag: '1.0.0',
    password: 7,
    feed: '',
    stateDirectory: 'state',
    database: 'beacon.db',
    executable: './beacon',
    healthPath: 'healthz',
    basePath: 'beacon/',
    update: { probation: '-1s', hangTimeout: '1ms' },
  } as unknown as EmbedOptions
  const { message } = throws(() => readSettings(wrong), withCode('invalid_settings'))
  for (const name of Object.keys(wrong).filter((key) => key !== 'update'))
    ok(message.includes(`\`${name}\``), `${name} in ${message}`)
  ok(message.includes('update.probation') && message.includes('update.hangTimeout'), message)
})

test('base paths are of plain names', () => {
  for (const basePath of ['', '/beacon', '/a/b-c/d.e_f~g']) is(readSettings({ ...LEAST, basePath }).basePath, basePath)
  for (const basePath of ['/', 'beacon', '/beacon/', '//beacon', '/a b', '/a?b', '/a#b', '/é', '/%41']) {
    throws(() => readSettings({ ...LEAST, basePath }), withCode('invalid_settings'))
  }
})

test('an operator says `update.busy`; another value is refused by name', () => {
  const settings = (busy: string) => {
    const configuration = { update: { busy: busy as Busy } }
    noteStart({ argv: [], executable: '/x', isChild: false, directory: null, configuration })
    return readSettings(LEAST)
  }
  is(settings('give-up').busy, 'give-up')
  const { message } = throws(() => settings('wait'), withCode('invalid_settings'))
  is(message, '`update.busy`: expected cut or give-up, got "wait"')
})

test.run()
