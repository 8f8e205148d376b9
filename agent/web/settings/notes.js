// Shows release notes: makes elements from Markdown. Anyone who can write to the feed can write them.
// Must hold: nothing in them becomes markup, runs, is loaded or is followed without a click; a text that is made to keep a parser
// busy is shown as plain text.

import { make, put, show, ui } from './page.js'
import { ago, language, t } from './words.js'

/** time for the blocks, the emphasis and the links of all notes together, and the length of one paragraph; anything beyond is plain text */
const INLINE_MS = 500
const RUN_MAX_CHARS = 2000
/** the length of what the parser of blocks gets at once, as its time grows with the square of that: longer notes are cut before their headings */
const PART_MAX_CHARS = 16_000
/** the notes to show, and a key that tells them from other notes */
let wanted = { key: '', all: [] }
/** loaded when a person opens the notes: it is as large as the rest of the page */
let Lexer = null
const ENTITIES = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00a0' }

/** Shows the notes of the offered release and of those that it skips; null shows none. */
export function renderNotes(report, running) {
  const { release = null, between = [] } = report ?? {}
  const all = (release === null ? [] : [release, ...between]).filter(({ notes, url }) => notes.trim() !== '' || url)
  show(ui.notes, all.length > 0)
  const [title, vars] =
    between.length === 0 ? ['notes.title', { to: release?.tag }] : ['notes.since', { from: running }]
  put(ui.notesTitle, all.length > 0 ? t(title, vars) : '')
  wanted = { key: JSON.stringify([language, all]), all }
  void fill()
}

ui.notes.addEventListener('toggle', fill)

async function fill() {
  if (!ui.notes.open) return
  Lexer ??= await import('./marked.js').then(
    (module) => module.Lexer,
    () => null, // not available now: show plain text
  )
  const key = `${Lexer !== null} ${wanted.key}`
  if (ui.notesText.dataset.key === key) return
  ui.notesText.dataset.key = key
  const deadline = performance.now() + INLINE_MS
  ui.notesText.replaceChildren(...wanted.all.map((one) => notesOf(one, deadline)))
}

function notesOf({ tag, notes, url, publishedAt }, deadline) {
  const date = publishedAt ? make('span', 'soft', t('latest.published', { time: ago(publishedAt) })) : ''
  const page = url ? link(url, [t('notes.page')]) : ''
  const head = make('div', 'bar', make('h3', '', tag), make('span', '', date, ' ', page))
  return make('section', '', head, ...blocksOf(notes, deadline))
}

export function blocksOf(text, deadline) {
  try {
    const lexer = new Lexer({ gfm: true })
    const { tokens } = lexer
    for (const part of text
      .replaceAll(/\r\n?/g, '\n')
      .split(text.length > PART_MAX_CHARS ? /^(?=#{1,6} )/m : undefined)) {
      if (part.length <= PART_MAX_CHARS && performance.now() < deadline) lexer.blockTokens(part, tokens)
      else tokens.push({ type: 'code', text: part })
    }
    for (const { src, tokens } of lexer.inlineQueue) {
      if (src.length <= RUN_MAX_CHARS && performance.now() < deadline) lexer.inlineTokens(src, tokens)
      else tokens.push({ type: 'text', raw: src, text: src })
    }
    const top = Math.min(6, ...tokens.map((token) => (token.type === 'heading' ? token.depth : 6)))
    let level = 3
    return tokens.map((token) => {
      if (token.type === 'heading') level = Math.min(level + 1, 6, 4 + token.depth - top)
      return block(token, level)
    })
  } catch {
    // nested too deeply, or there is no parser
    return [make('pre', 'plain', text)]
  }
}

/** `level`: of a heading, chosen so that the outline has no gaps. */
function block(token, level) {
  switch (token.type) {
    case 'space':
    case 'def':
      return ''
    case 'heading':
      return make(`h${level}`, '', ...inlines(token))
    case 'paragraph':
      return make('p', '', ...inlines(token))
    case 'text':
      return token.tokens ? make('span', '', ...inlines(token)) : decoded(token.text)
    case 'code':
      return make('pre', '', make('code', '', token.text))
    case 'blockquote':
      return make('blockquote', '', ...token.tokens.map((one) => block(one, 6)))
    case 'list':
      return list(token)
    case 'table':
      return table(token)
    case 'hr':
      return make('hr', '')
    default:
      return make('p', '', token.raw)
  }
}

function list({ ordered, start, items }) {
  const element = make(ordered ? 'ol' : 'ul', '', ...items.map(listItem))
  if (ordered && start > 1) element.start = start
  return element
}

function listItem({ task, checked, tokens }) {
  const mark = task ? (checked ? '☑ ' : '☐ ') : ''
  const parts = tokens.filter(({ type }) => type !== 'checkbox')
  return make('li', '', mark, ...parts.map((one) => block(one, 6)))
}

function table({ header, rows }) {
  const row = (name, cells) => make('tr', '', ...cells.map((cell) => make(name, '', ...inlines(cell))))
  return make(
    'table',
    '',
    make('thead', '', row('th', header)),
    make('tbody', '', ...rows.map((one) => row('td', one))),
  )
}

function inlines({ tokens, text = '' }) {
  return tokens ? tokens.map(inline) : [decoded(text)]
}

function inline(token) {
  switch (token.type) {
    case 'strong':
    case 'em':
    case 'del':
      return make(token.type, '', ...inlines(token))
    case 'codespan':
      return make('code', '', token.text)
    case 'br':
      return make('br', '')
    case 'link':
      return link(token.href, inlines(token))
    case 'image':
      return link(token.href, [decoded(token.text || token.href)])
    case 'text':
    case 'escape':
      return token.tokens ? make('span', '', ...inlines(token)) : decoded(token.text)
    default:
      return token.raw
  }
}

/** A link if it leads to http or https; else only its text. Images become links, so that no server learns who reads the page. */
function link(href, children) {
  if (!URL.canParse(href) || !/^https?:$/.test(new URL(href).protocol)) return make('span', '', ...children)
  const element = make('a', '', ...children)
  element.href = href
  element.rel = 'noopener noreferrer nofollow'
  element.target = '_blank'
  return element
}

/** Decodes entities: marked leaves them for HTML, and this page makes no HTML. */
function decoded(text) {
  return text.replaceAll(/&(?:#(\d{1,7})|#x([\da-f]{1,6})|(\w{2,4}));/gi, (whole, decimal, hex, name) => {
    if (name) return ENTITIES[name] ?? whole
    const code = decimal ? Number(decimal) : Number.parseInt(hex, 16)
    return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : '\ufffd'
  })
}
