// Checks whether this host can have an install of this kind at all.

import { isRoot } from '../place/identity.ts'
import type { Layout } from '../place/layout.ts'
import { hasSystemd } from '../supervisor/systemd.ts'
import { failure, type Finding, ok, type Subject } from './finding.ts'

export async function checkHost(): Promise<Finding[]> {
  const { platform, arch } = process
  if (platform !== 'linux' && platform !== 'darwin') {
    return [
      failure(
        'host',
        `expected Linux or macOS, got ${platform}`,
        'see the guide for a manually started binary',
        'unsupported_host',
      ),
    ]
  }
  return [ok('host', `${platform} ${arch}`)]
}

export async function checkRights({ layout }: Subject): Promise<Finding[]> {
  if (layout.scope === 'system' && !isRoot()) {
    return [
      failure(
        'rights',
        'expected to run as root for an install for the whole host',
        'use sudo, or install for yourself with `--user`',
        'refused',
      ),
    ]
  }
  return []
}

export async function checkSupervisor({
  layout,
  withUnit,
}: {
  layout: Pick<Layout, 'scope'>
  withUnit: boolean
}): Promise<Finding[]> {
  if (!withUnit) return [ok('supervisor', 'a detached process, as asked for with `--no-service`')]
  if (await hasSystemd(layout.scope))
    return [ok('supervisor', layout.scope === 'system' ? 'systemd' : 'systemd --user')]
  const what = layout.scope === 'system' ? 'systemd' : 'a systemd manager of this user'
  const hint =
    layout.scope === 'user'
      ? 'log in anew (or `loginctl enable-linger`), or run it without one: `--no-service`'
      : 'run it without one: `--no-service`'
  return [failure('supervisor', `expected ${what} on this host, found none`, hint, 'unsupported_host')]
}
