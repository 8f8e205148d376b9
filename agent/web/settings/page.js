// The page's elements, and the few functions that put text into them.
// Must hold: what comes from the service becomes text nodes and elements made here, never markup.

/**
 * every element with an id, by its id
 * @type {Record<string, any>}
 */
export const ui = Object.fromEntries([...document.querySelectorAll('[id]')].map((element) => [element.id, element]))

export function put(element, text) {
  if (element.textContent !== text) element.textContent = text
}

const SUM = /\b([0-9a-f]{32,})\b/

/** Shows text in which `backticks` and sums become code. Each line after the first is what the service has said, in English. */
export function putCode(element, text) {
  if (element.dataset.text === text) return element
  element.dataset.text = text
  const [own, ...said] = text.split('\n')
  element.replaceChildren(...withCode(own), ...said.map((line) => make('span', 'said', ...withCode(line))))
  for (const line of element.querySelectorAll('.said')) line.lang = 'en'
  return element
}

function withCode(text) {
  return text.split('`').flatMap((part, index) => (index % 2 === 1 ? make('code', '', part) : withSums(part)))
}

/** Makes code of each sum, which may break after every eight digits and is copied without the breaks. */
function withSums(text) {
  return text.split(SUM).map((part, index) => {
    if (index % 2 === 0) return part
    const groups = part.match(/.{1,8}/g) ?? []
    return make('code', 'sum', ...groups.flatMap((group) => [group, make('wbr', '')]))
  })
}

/** Shows the text, or hides the element if it is empty. */
export function tell(element, text) {
  putCode(element, text)
  show(element, text !== '')
}

export function show(element, shown) {
  element.hidden = !shown
}

/** A button that cannot be used now keeps the focus and reports that it is disabled. */
export function enable(button, enabled) {
  button.setAttribute('aria-disabled', String(!enabled))
}

export function onUse(button, act) {
  button.addEventListener('click', () => {
    if (button.getAttribute('aria-disabled') !== 'true') act()
  })
}

export function make(name, className, ...children) {
  const element = document.createElement(name)
  if (className !== '') element.className = className
  element.append(...children)
  return element
}

export function icon(name, className = '') {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg')
  if (className !== '') svg.setAttribute('class', className)
  svg.setAttribute('viewBox', '0 0 16 16')
  svg.setAttribute('aria-hidden', 'true')
  const use = document.createElementNS('http://www.w3.org/2000/svg', 'use')
  use.setAttribute('href', `#i-${name}`)
  svg.append(use)
  return svg
}

let announced = ''

/** Announces the text to a screen reader, once for each key. */
export function announce(text, key = text) {
  if (key === announced) return
  announced = key
  ui.live.textContent = text
}

/** If the element with the focus is hidden now, moves the focus to the title that fits best, not to the top of the page. */
export function keepFocus(focused) {
  if (focused === null || focused === document.body || focused.closest('[hidden]') === null) return
  const next = [ui.busyTitle, ui.outcomeTitle, ui.cardTitle, ui.unmanagedTitle, ui.token].find(
    (one) => one.closest('[hidden]') === null,
  )
  next?.focus()
}
