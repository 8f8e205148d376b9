// The page's words, sizes and times in the chosen language. Loads only that language.

import { memory } from './memory.js'
import { ui, put } from './page.js'

const LANGUAGES = {
  en: { name: 'English', load: async () => (await import('./en.js')).en },
  zh: { name: '中文', load: async () => (await import('./zh.js')).zh },
}

const STOP = /[.。]$/

export let language = known(memory.choice()) ?? preferred(navigator.languages)
let words = await LANGUAGES[language].load()

/** The first of the page's languages in the browser's list, if Chinese is in it; else English. */
function preferred(languages) {
  return languages.some((one) => /^zh\b/i.test(one)) ? (languages.map(short).find(known) ?? 'en') : 'en'
}

function short(tag) {
  return tag.slice(0, 2).toLowerCase()
}

function known(name) {
  return name in LANGUAGES ? name : null
}

export const otherLanguage = () => (language === 'en' ? 'zh' : 'en')

/** Keeps the current language if the other one cannot be loaded. */
export async function speak(next) {
  try {
    words = await LANGUAGES[next].load()
    language = next
  } catch {
    // the service does not answer: the next click asks again
  }
  const other = otherLanguage()
  document.documentElement.lang = codeOf(language)
  put(ui.language, LANGUAGES[other].name)
  ui.language.lang = codeOf(other)
  for (const element of document.querySelectorAll('[data-t]')) put(element, t(element.getAttribute('data-t')))
}

const codeOf = (name) => (name === 'zh' ? 'zh-CN' : 'en')

export function t(key, vars = {}) {
  return (words[key] ?? key).replace(/\{(\w+)\}/g, (_, name) => String(vars[name] ?? ''))
}

/** The words for the key, '' if there are none. */
export const ifAny = (key, vars = {}) => (key in words ? t(key, vars) : '')

export const sentences = (...all) => joined(all, language === 'zh' ? '' : ' ')

/** One text of all; what the service has said in its own words comes last. */
export function joined(all, between) {
  const lines = all.map((one) => one.split('\n'))
  const own = lines.map(([first]) => first).filter((one) => one !== '')
  return [own.join(between), ...lines.flatMap(([, ...said]) => said)].join('\n')
}

/** What the service says in its own words, which are English. */
export const said = (text) => (language === 'en' || !text ? (text ?? '') : `\n${text}`)

/** A sentence of the page, and what the service says of it: in English one sentence, else a line of its own. */
export function withWhy(text, why) {
  if (!why || text === '') return text || why || ''
  return language === 'en' ? stopped(`${withoutStop(text)}: ${why}`) : `${text}\n${why}`
}

export const withoutStop = (text) => text.replace(STOP, '')
export const stopped = (text) => (language === 'en' ? `${withoutStop(text)}.` : text)

/** of a code that the page does not know, the service's own words are enough */
const errorText = (code) => ifAny(`error.${code}`)

/** The page's sentence for the code, then the service's own words. */
export const because = ({ code, message }) => withoutStop(withWhy(withoutStop(errorText(code)), message))

/** A sentence of the page, and the fault that it speaks of. In English the service's own words are enough. */
export const withFault = (text, { code, message }) =>
  withWhy(language === 'en' ? text : sentences(text, errorText(code)), message)

/** What is waited for, in the page's words; a code that it does not know in the service's. */
export function waiting(wait) {
  const own = ifAny(`wait.${wait.code}`, { ...wait, mode: t(`mode.${wait.mode}`), time: age(wait.hours ?? 0) })
  return own === '' ? (wait.says ?? wait) : withWhy(own, wait.why)
}

/**
 * Why an answer is not the one that was wanted: of a problem document the page's sentence, the detail, and the hint; '' if it is.
 * @param {import('./endpoints.js').Answer} answer
 */
export function faultText({ kind, code, body }) {
  if (kind === 'ok') return ''
  if (kind !== 'problem') return t('notice.lost')
  return [withWhy(errorText(code), body.detail), body.hint].filter(Boolean).join(language === 'en' ? ' ' : '\n')
}

/** `unit` false: without the unit. `scale`: the number that decides the unit. */
export function bytes(count, scale = count, unit = true) {
  const [size, name] = scale >= 1e9 ? [1e9, 'GB'] : scale >= 1e6 ? [1e6, 'MB'] : [1e3, 'kB']
  const digits = { minimumFractionDigits: 1, maximumFractionDigits: 1 }
  const value = new Intl.NumberFormat(language, digits).format(count / size)
  return unit ? `${value} ${name}` : value
}

export function duration(ms) {
  return ms < 1000 ? t('ms', { n: Math.max(0, Math.round(ms)) }) : remaining(ms)
}

/** Whole seconds, at least one: a time to come is not known to the millisecond. */
export function remaining(ms) {
  const seconds = Math.max(1, Math.round(ms / 1000))
  if (seconds < 60) return t('s', { n: seconds })
  const minutes = t('min', { n: Math.floor(seconds / 60) })
  return seconds % 60 === 0 ? minutes : `${minutes} ${t('s', { n: seconds % 60 })}`
}

export const clock = (ms) =>
  `${Math.max(0, Math.floor(ms / 60000))}:${String(Math.max(0, Math.floor(ms / 1000) % 60)).padStart(2, '0')}`

export const day = (iso) => new Intl.DateTimeFormat(language, { dateStyle: 'medium' }).format(new Date(iso))

export const minute = (iso) =>
  new Intl.DateTimeFormat(language, { dateStyle: 'medium', timeStyle: 'short' }).format(new Date(iso))

export const DAYS = ['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun']
/** a Monday */
const MONDAY = Date.UTC(2024, 0, 1)

export const dayName = (name) =>
  new Intl.DateTimeFormat(language, { weekday: 'short', timeZone: 'UTC' }).format(
    MONDAY + DAYS.indexOf(name) * 86_400_000,
  )

/** Whole days as days. */
export function age(hours) {
  const [unit, n] = hours % 24 === 0 ? ['day', hours / 24] : ['hour', hours]
  return new Intl.NumberFormat(language, { style: 'unit', unit, unitDisplay: 'long' }).format(n)
}

/** Today only the time. */
export const soon = (iso) =>
  new Date(iso).toDateString() === new Date(now()).toDateString()
    ? new Intl.DateTimeFormat(language, { timeStyle: 'short' }).format(new Date(iso))
    : minute(iso)

export const moment = (iso) =>
  new Intl.DateTimeFormat(language, { dateStyle: 'medium', timeStyle: 'medium' }).format(new Date(iso))

export function ago(iso) {
  const seconds = (now() - Date.parse(iso ?? '')) / 1000
  if (Number.isNaN(seconds)) return ''
  if (seconds < 45) return t('now')
  /** @type {[Intl.RelativeTimeFormatUnit, number]} */
  const [unit, size] = seconds < 3600 ? ['minute', 60] : seconds < 86400 ? ['hour', 3600] : ['day', 86400]
  if (unit === 'day' && seconds > 30 * size) return day(iso)
  return new Intl.RelativeTimeFormat(language, { numeric: 'auto' }).format(-Math.round(seconds / size), unit)
}

/** How many milliseconds this machine's clock is behind the service's. */
let skewMs = 0
export const now = () => Date.now() + skewMs

/** `date`: the Date header of an answer that has just arrived. */
export function setClock(date) {
  const ms = Date.parse(date ?? '') - Date.now()
  skewMs = Math.abs(ms) > 3000 ? ms : 0
}
