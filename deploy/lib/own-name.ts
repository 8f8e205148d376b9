// The name of the user that this process runs as.

import { userInfo } from 'node:os'

export function ownName(): string {
  try {
    return userInfo().username
  } catch {
    return String(process.getuid?.() ?? '') // a uid without a name, as in some containers
  }
}
