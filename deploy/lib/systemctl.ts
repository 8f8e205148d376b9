// systemd's two managers, the host's and a user's: how each is asked, and where whoever administers it puts units.

import { join } from 'node:path'
import { type Home, xdgFolder } from './xdg.ts'

export function systemctlFor(scope: 'system' | 'user'): string[] {
  return scope === 'system' ? ['systemctl'] : ['systemctl', '--user']
}

export function unitFolderFor(scope: 'system' | 'user', home: Home): string {
  return scope === 'system' ? '/etc/systemd/system' : join(xdgFolder('XDG_CONFIG_HOME', home), 'systemd/user')
}
