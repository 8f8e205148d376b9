// What causes each error, and what to do: for the page of the errors, and for a command whose error has no hint of its own. Pure.
// The texts are not in agent/words/errors.ts: a service would load them to serve.

import type { ErrorCode } from '../../agent/words.ts'

interface Remedy {
  /** sentences */
  cause: string
  fix: string
}

export const REMEDIES: Readonly<Record<ErrorCode, Remedy>> = {
  unauthorized: {
    cause:
      'The request has no password, or another one than `dashboard.password`, and no login of the application that its `authorize` allows to update.',
    fix: 'Send `Authorization: Bearer PASSWORD`, with `dashboard.password` of the service’s `config.json`, or log in as somebody who may update.',
  },
  no_password: {
    cause: '`dashboard.password` is empty, so nobody may update this service over HTTP.',
    fix: 'Set `dashboard.password` in `config.json` and restart the service. The command line needs no password.',
  },
  too_many_failures: {
    cause: 'Too many wrong passwords came from one address, which may be a proxy’s.',
    fix: 'Send the right password: it is accepted at once. Behind a proxy, set `dashboard.trustedProxy`.',
  },
  invalid_request: {
    cause: 'The body is not JSON, has an unknown field or a wrong type, or there are two `Host` headers.',
    fix: 'The detail names what was expected; [openapi.json](openapi.json) has it all.',
  },
  invalid_tag: {
    cause: 'A release was named in another form than `vX.Y.Z`.',
    fix: 'Name it as the feed does, such as `v1.2.0`.',
  },
  body_too_large: {
    cause: 'The body of the request is longer than the endpoint reads.',
    fix: 'Send only the fields that the endpoint knows.',
  },
  not_found: {
    cause: 'There is no such endpoint, or no operation with this id is remembered.',
    fix: 'Check the path, and the prefix `basePath` if one is set.',
  },
  method_not_allowed: {
    cause: 'The path exists and does not answer this method.',
    fix: 'Use a method that the header `Allow` names.',
  },
  update_in_flight: {
    cause: 'An update or a rollback is running; there is at most one.',
    fix: 'Wait until it has ended: `GET /admin/update/status?wait=30`, or `status`.',
  },
  too_late: {
    cause: 'No update is running, or its new release is being put in place.',
    fix: 'Wait for the outcome, then roll back if you want the old version.',
  },
  no_backup: {
    cause: 'No update has left a backup executable here yet.',
    fix: 'Name a release instead: `rollback vX.Y.Z`, or `POST /admin/update` with that tag.',
  },
  not_managed: {
    cause: 'The process runs in a container, from source, or from a file that `install.sh` did not put there.',
    fix: 'Take the way that `route` of the answer names, or install the service with `install.sh`.',
  },
  node_unsupported: {
    cause: 'The Node in the executable lacks what a switch needs.',
    fix: 'Replace the executable by one that is built on Node 26.1 or later, and restart.',
  },
  invalid_settings: {
    cause: 'A setting, a flag or a release’s configuration has another type or is out of bounds.',
    fix: 'Correct what the message names. [settings.md](settings.md) has the bounds.',
  },
  unsupported_host: {
    cause: 'This machine is not Linux with glibc, lacks a program, or its systemd or engine is too old.',
    fix: 'Install what the message names. `doctor` finds all of it at once.',
  },
  refused: {
    cause: 'What was asked would do harm or needs consent: too little space, too long a pause.',
    fix: 'Nothing has changed. The message says what stands in the way.',
  },
  metadata_missing: {
    cause: 'This executable takes signed releases only, and the feed has no signatures.',
    fix: 'The maintainer signs the feed with `baton trust sign`. A mirror must copy the metadata too.',
  },
  metadata_expired: {
    cause: 'The feed’s signatures have expired, or this host’s clock is ahead.',
    fix: 'Check the clock. Otherwise the maintainer signs anew: `baton trust refresh`.',
  },
  metadata_older: {
    cause: 'This host has seen newer metadata: an outdated mirror, or an attack.',
    fix: 'Use the original feed. If it is the original, ask the maintainer before you update.',
  },
  metadata_mixed: {
    cause: 'The feed was read while its maintainer published, or a cache mixes files.',
    fix: 'Try again in a minute. If it lasts, empty the cache in front of the feed.',
  },
  metadata_invalid: {
    cause: 'The feed’s metadata cannot be read, or belong to another service.',
    fix: 'Check the setting `feed`. The maintainer can publish the metadata again.',
  },
  signature_missing: {
    cause: 'The feed is not signed by a key that this executable trusts.',
    fix: 'Do not update: somebody else may be writing to the feed. Ask the maintainer.',
  },
  threshold_not_met: {
    cause: 'Fewer keys have signed than the feed’s root demands.',
    fix: 'The maintainer adds the missing signatures, then the update works.',
  },
  root_unreachable: {
    cause: 'The feed’s keys were replaced in a way that this old executable cannot follow.',
    fix: 'Install a newer release by its `install.sh`, from a place that you trust.',
  },
  clock_wrong: {
    cause: 'This host’s clock is before the day of the build.',
    fix: 'Set the clock (`timedatectl set-ntp true`), and try again.',
  },
  yanked: {
    cause: 'The publisher has yanked this release; the message says why.',
    fix: 'Choose another release.',
  },
  not_signed: {
    cause: 'The release exists, and the maintainer has not signed it.',
    fix: 'The maintainer signs it with `baton trust sign`. Until then choose a signed one.',
  },
  check_failed: {
    cause: 'The feed could not be reached or read: network, proxy, address, token.',
    fix: 'Open the feed’s address from this host. `doctor` tries it, and says what fails.',
  },
  release_not_found: {
    cause: 'The feed has no release with this tag. A private repository looks empty without a token.',
    fix: 'Check the tag, the setting `feed`, and [the token](../operator/update.md#where-releases-come-from).',
  },
  release_unusable: {
    cause: 'The release has no executable for this platform, or contradicts itself.',
    fix: 'Choose another release. The maintainer builds it for this platform or publishes it again.',
  },
  rate_limited: {
    cause: 'The feed answers no more requests for now. GitHub allows 60 an hour without a token.',
    fix: 'Wait until the time in the message, or give the service [a token](../operator/update.md#where-releases-come-from).',
  },
  download_failed: {
    cause: 'The download broke off repeatedly, brought nothing for too long, or the disk is full.',
    fix: 'Try again: nothing has changed. The message says which it was.',
  },
  verify_failed: {
    cause: 'The download has a wrong checksum, or does not run, or not on a copy of the data.',
    fix: 'Nothing has changed. Try once more, then send the message to the maintainer.',
  },
  swap_failed: {
    cause: 'The new executable could not be put in place, or no snapshot be made: mostly disk space or rights.',
    fix: 'The old version still runs. Correct what the message names and try again.',
  },
  restart_failed: {
    cause: 'The new version did not start, or not in time. The old one serves again.',
    fix: 'Read the message’s last lines and the log. If it needs longer, raise `update.readyTimeout`.',
  },
  probation_failed: {
    cause: 'The new version started, then crashed, hung or became unhealthy. The old one serves again.',
    fix: 'Report the service’s log of that time to the maintainer. `latest` passes over it here.',
  },
  cannot_update_further: {
    cause: 'The new version runs, but could not install later updates, so it was put back.',
    fix: 'The message says what it lacks: mostly the feed’s address or a file’s rights.',
  },
  undo_failed: {
    cause: 'An update failed, and the old version could not be put back.',
    fix: 'Look at `status` and the log. `install.sh upgrade TAG` installs a release over it.',
  },
  irreversible: {
    cause: 'On a copy of the data, the present release did not work with what the new one had changed.',
    fix: 'Copy the database (`snapshot`). Then allow this update: the tick in the panel, `allowIrreversible` in the request, `--allow-irreversible`.',
  },
  schema_newer: {
    cause: 'The running version has changed the data, and the backup cannot work with them.',
    fix: 'Roll back with `--restore-state`: it restores the snapshot, and keeps the present data aside.',
  },
  busy: {
    cause: 'The switch found no moment without requests, and `update.busy` is `give-up`.',
    fix: 'Try when less is going on, name [streams that never end](../author/order.md#streams-that-nobody-registers), or set `update.busy` to `cut`.',
  },
  cancelled: {
    cause: 'Somebody cancelled the operation.',
    fix: 'Nothing has changed. Start it again when you want it.',
  },
  interrupted: {
    cause: 'The process of the operation was killed or stopped, or the host went down.',
    fix: 'The service has cleared up: `status` says what runs. Try again.',
  },
  locked: {
    cause: 'Another command or the service itself has the lock of this install.',
    fix: 'Wait for it, or give the command `--lock-timeout`. The lock ends with its process.',
  },
  service_down: {
    cause: 'Nobody answers at the service’s address.',
    fix: 'Read its log, then start it. `doctor` says what keeps it from starting.',
  },
  unexpected: {
    cause: 'Something happened that nobody foresaw.',
    fix: 'Please report it, with the message and the service’s log.',
  },
}

/** What to do, for a terminal: a host with an install has no pages that a link could lead to. */
export function remedyOf(code: ErrorCode): string {
  const { fix } = REMEDIES[code]
  const text = fix.replaceAll(/\[([^\]]+)\]\([^)]+\)/g, '$1').replace(/\.$/, '')
  return /^[A-Z][a-z]/.test(text) ? text.charAt(0).toLowerCase() + text.slice(1) : text
}
