// What the manager calls a socket that it holds for a listener of this service.

const [PREFIX, NAME_MAX] = ['baton-', 255]

/** A name that systemd accepts: visible ASCII without `:`, at most 255 characters. */
export function storedNameOf(key: string): string {
  const name = `${PREFIX}${encodeURIComponent(key)}`
  return name.length <= NAME_MAX ? name : name.slice(0, NAME_MAX)
}

/** The key in such a name; null for any other name. */
export function keyOfName(name: string): string | null {
  try {
    return name.startsWith(PREFIX) ? decodeURIComponent(name.slice(PREFIX.length)) : null
  } catch {
    return null
  }
}
