// This tab's memory, separate for each path. If the browser forbids storage, the memory lasts as long as the page.

const prefix = `baton:${location.pathname}:`
const spare = new Map()

function guarded(act, fallback) {
  try {
    return act()
  } catch {
    return fallback()
  }
}

export const memory = {
  get: (key) =>
    guarded(
      () => JSON.parse(sessionStorage.getItem(prefix + key)),
      () => spare.get(key) ?? null,
    ),
  set(key, value) {
    spare.set(key, value)
    guarded(
      () =>
        value === null
          ? sessionStorage.removeItem(prefix + key)
          : sessionStorage.setItem(prefix + key, JSON.stringify(value)),
      () => {},
    )
  },
  /** the language that a person has chosen on this page, for every tab */
  choice: () =>
    guarded(
      () => localStorage.getItem('baton:language'),
      () => null,
    ),
  choose: (value) =>
    guarded(
      () => localStorage.setItem('baton:language', value),
      () => {},
    ),
}
