// `<baton-badge>` for an application's own pages: says that a release is available, starts the update, and follows it across the switch.
// Must hold: whoever may not update sees nothing, and is asked about once a page; "updated" is said only when another process answers with
// the release that was wanted; a page that nobody sees asks nothing.
// A page takes it by `<script type="module" src="/web/badge.js"></script>`. Its words are attributes, its looks custom properties.

const API = new URL('../admin/update', import.meta.url).href
const CHECK_EVERY_MS = 3_600_000
const [POLL_MS, IDLE_MS, DONE_MS] = [1000, 60_000, 10_000]
/** in a switch a login may refuse for a moment, before it knows its sessions */
const REFUSALS_IN_A_SWITCH = 15

const WORDS = {
  available: '{tag} is available',
  update: 'Update',
  details: 'Details',
  updating: 'Updating to {tag} …',
  updated: 'Updated to {tag}',
  failed: 'The update failed; {tag} is running',
  refused: 'This update was refused',
}

const STYLE = `:host { display: inline-block; font: var(--baton-font, inherit); color: var(--baton-color, inherit) }
:host([hidden]) { display: none }
div { display: flex; gap: .5em; align-items: center; padding: var(--baton-padding, .25em .6em);
  background: var(--baton-background, transparent); border: var(--baton-border, 1px solid currentColor); border-radius: var(--baton-radius, .4em) }
button { font: inherit; color: var(--baton-accent-color, #fff); background: var(--baton-accent, #0b57d0); border: 0;
  border-radius: inherit; padding: .2em .7em; cursor: pointer }
a { color: inherit }
[hidden] { display: none }`

class Badge extends HTMLElement {
  static observedAttributes = ['ask']
  #timer = 0
  #refusals = 0
  #says = document.createElement('span')
  #button = document.createElement('button')
  #link = document.createElement('a')
  /** @type {{ id: string, from: string | null, to: string | null } | null} from: null if the wanted release serves already */
  #followed = null

  constructor() {
    super()
    const root = this.attachShadow({ mode: 'open' })
    const sheet = new CSSStyleSheet()
    sheet.replaceSync(STYLE)
    root.adoptedStyleSheets = [sheet]
    const box = document.createElement('div')
    this.#says.setAttribute('role', 'status')
    this.#link.href = new URL('settings.html', import.meta.url).href
    this.#button.type = 'button'
    this.#button.addEventListener('click', () => void this.#start())
    box.append(this.#says, this.#button, this.#link)
    root.append(box)
  }

  connectedCallback() {
    this.hidden = true
    document.addEventListener('visibilitychange', this.#seen)
    this.attributeChangedCallback()
  }

  disconnectedCallback() {
    document.removeEventListener('visibilitychange', this.#seen)
    clearTimeout(this.#timer)
  }

  /** The page has set `ask`: somebody has logged in without loading it anew. */
  attributeChangedCallback() {
    this.#refusals = 0
    this.#again(0)
  }

  #seen = () => this.#again(0)

  #word(name, tag = '') {
    return (this.getAttribute(name) ?? WORDS[name]).replace('{tag}', tag)
  }

  /** Shows one sentence; with the button if there is something to begin. */
  #show(name, tag) {
    this.#says.textContent = this.#word(name, tag)
    this.#button.textContent = this.#word('update')
    this.#link.textContent = this.#word('details')
    this.#button.hidden = name !== 'available'
    this.hidden = false
  }

  #again(ms) {
    clearTimeout(this.#timer)
    const isOver = this.#refusals >= (this.#followed === null ? 1 : REFUSALS_IN_A_SWITCH)
    if (this.isConnected && !document.hidden && !isOver) this.#timer = setTimeout(() => void this.#look(), ms)
  }

  async #look() {
    const status = await ask('GET', '/status')
    this.#refusals = status.status === 401 || status.status === 403 ? this.#refusals + 1 : 0
    if (status.value === undefined) {
      // in a switch somebody else, or nobody, may answer for a moment
      if (this.#refusals >= REFUSALS_IN_A_SWITCH) this.#followed = null
      if (this.#followed === null) this.hidden = true
      return this.#again(this.#followed === null ? IDLE_MS : POLL_MS)
    }
    const { operation, instance } = status.value
    if (operation !== null && operation.outcome === null && this.#followed?.id !== operation.id)
      this.#followed = {
        id: operation.id,
        from: instance.version === operation.to ? null : instance.id,
        to: operation.to,
      }
    // what this page has followed has ended, and so has another one since
    if (operation?.id !== this.#followed?.id) this.#followed = null
    if (this.#followed !== null) return this.#follow(operation, instance)
    const tag = await newest(instance.id)
    if (tag === null) this.hidden = true
    else this.#show('available', tag)
    this.#again(IDLE_MS)
  }

  #follow(operation, instance) {
    const { from } = this.#followed
    if (operation.outcome === null) {
      this.#show('updating', operation.to ?? this.#followed.to ?? '')
      return this.#again(POLL_MS)
    }
    const isDone = operation.outcome === 'updated' || operation.outcome === 'rolled_back'
    if (isDone && (instance.id === from || instance.version !== operation.to)) return this.#again(POLL_MS)
    this.#followed = null
    stored('removeItem')
    const isFailed = operation.outcome === 'failed' || operation.outcome === 'reverted'
    if (isDone || isFailed) this.#show(isDone ? 'updated' : 'failed', instance.version)
    this.dispatchEvent(new CustomEvent('baton-ended', { bubbles: true, composed: true, detail: operation }))
    this.#again(isDone || isFailed ? DONE_MS : POLL_MS)
  }

  async #start() {
    clearTimeout(this.#timer)
    this.#button.hidden = true
    const before = await ask('GET', '/status')
    const tag = await newest(before.value?.instance.id)
    const begun = tag === null ? {} : await ask('POST', '', { tag })
    if (begun.value !== undefined) this.#followed = { id: begun.value.id, from: before.value?.instance.id, to: tag }
    // not if somebody else has begun in this moment
    const isRefused = begun.status === 409 && begun.code !== 'update_in_flight'
    if (isRefused) this.#show('refused')
    this.#again(isRefused ? IDLE_MS : POLL_MS)
  }
}

/** The newest release, if it is newer than `instance`'s; asked once an hour for all pages of this browser. */
async function newest(instance) {
  const known = JSON.parse(stored('getItem') ?? 'null')
  if (known?.instance === instance && Date.now() - known.at < CHECK_EVERY_MS) return known.tag
  const { value } = await ask('POST', '/check')
  if (value === undefined) return null
  const tag = value.updateAvailable ? value.latest : null
  stored('setItem', JSON.stringify({ at: Date.now(), instance, tag }))
  return tag
}

/** A browser may forbid the storage, and the application may have filled it. */
function stored(does, ...given) {
  try {
    return localStorage[does](API, ...given)
  } catch {
    return null
  }
}

/** `value` undefined: it was refused, or something else than the service has answered. */
async function ask(method, path, body) {
  try {
    const response = await fetch(API + path, {
      method,
      cache: 'no-store',
      redirect: 'error',
      signal: AbortSignal.timeout(method === 'GET' ? 5000 : 60_000),
      ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
    })
    const value = await response.json().catch(() => undefined)
    return { status: response.status, value: response.ok ? value : undefined, code: value?.code }
  } catch {
    return { status: 0, value: undefined }
  }
}

customElements.define('baton-badge', Badge)
