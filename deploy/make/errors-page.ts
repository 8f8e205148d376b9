// Draws the page of the error codes: what causes each, and what to do. Pure.
// The texts are not in agent/words/errors.ts: a service would load them to serve.

import { type ErrorCode, EXITS, MEANINGS } from '../../agent/words.ts'

interface Entry {
  /** sentences */
  cause: string
  fix: string
}

export const ENTRIES: Readonly<Record<ErrorCode, Entry>> = {
  unauthorized: {
    cause: 'The request has no password, or another one than the setting `dashboard.password`.',
    fix: 'Send `Authorization: Bearer PASSWORD`. The installer wrote the password into the service’s `config.json`.',
  },
  no_password: {
    cause: 'The setting `dashboard.password` is empty, so nobody may update this service over HTTP.',
    fix: 'Set `dashboard.password` in `config.json` and restart the service. The command line needs none.',
  },
  too_many_failures: {
    cause: 'Too many wrong passwords came from one address. Behind a proxy, all clients may share its address.',
    fix: 'Wait `retryAfterSeconds`. Behind a proxy, set `dashboard.trustedProxy`. The right password is never slowed down.',
  },
  invalid_request: {
    cause:
      'The body is not JSON, has an unknown field or a value of another type, or the request has two `Host` headers.',
    fix: 'Compare the request with [openapi.json](openapi.json); the detail names what was expected.',
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
    fix: 'Check the path, and the prefix `basePath` if one is set. `GET /admin/update/operations` lists the operations.',
  },
  method_not_allowed: {
    cause: 'The path exists and does not answer this method.',
    fix: 'Use a method that the header `Allow` names.',
  },
  update_in_flight: {
    cause: 'An update or a rollback is running; there is at most one.',
    fix: 'Wait until it has ended: `GET /admin/update/status?wait=30`, or `status` on the command line.',
  },
  too_late: {
    cause: 'No update is running, or its swap has begun, after which it can no longer be cancelled.',
    fix: 'Wait for its outcome, then roll back if you want the old version.',
  },
  no_backup: {
    cause: 'No update has left a backup executable here yet.',
    fix: 'Name a release instead: `rollback vX.Y.Z`, or `POST /admin/update` with that tag.',
  },
  not_managed: {
    cause: 'The process runs in a container, from source, or from a file that no receipt of the installer names.',
    fix: 'Take the route that the answer names in `route`, or install the service with `install.sh`.',
  },
  node_unsupported: {
    cause: 'The Node in the executable lacks what a switch needs.',
    fix: 'Replace the executable by one that is built on Node 26.1 or later, and restart.',
  },
  invalid_settings: {
    cause: 'A setting, a flag’s value or a release’s configuration has another type or is out of its bounds.',
    fix: 'Correct what the message names. [settings.md](settings.md) has each setting with its bounds.',
  },
  unsupported_host: {
    cause:
      'This machine lacks something: another platform than Linux with glibc, a missing program, too old a systemd or engine.',
    fix: 'Install what the message names. `doctor` finds all of it at once.',
  },
  refused: {
    cause:
      'What was asked would do harm, or needs consent: too little disk space, too long a pause, an install that is not the one named.',
    fix: 'Nothing has changed. The message says what stands in the way; the hint, where there is one, how to allow it.',
  },
  metadata_missing: {
    cause: 'This executable takes signed releases only, and the feed has no signatures.',
    fix: 'The maintainer signs the feed with `baton trust sign`. On a mirror, check that the metadata were copied too.',
  },
  metadata_expired: {
    cause: 'The feed’s signatures were valid until a date that has passed, or this host’s clock is ahead.',
    fix: 'Check the clock. Otherwise the maintainer signs anew: `baton trust refresh`.',
  },
  metadata_older: {
    cause: 'The feed offers older metadata than this host has seen: an outdated mirror, or an attack.',
    fix: 'Use the original feed. If that is the one, ask the maintainer before you update.',
  },
  metadata_mixed: {
    cause: 'The feed was read while its maintainer published, or a cache mixes old and new files.',
    fix: 'Try again in a minute. If it lasts, empty the cache in front of the feed.',
  },
  metadata_invalid: {
    cause: 'The feed’s metadata cannot be read, or they are of another service.',
    fix: 'Check the setting `feed`. The maintainer can publish the metadata again.',
  },
  signature_missing: {
    cause: 'The feed is not signed by a key that this executable trusts.',
    fix: 'Do not update: somebody else may be writing to the feed. Ask the maintainer.',
  },
  threshold_not_met: {
    cause: 'Fewer keys have signed than the feed’s rules want.',
    fix: 'The maintainer adds the missing signatures, then the update works.',
  },
  root_unreachable: {
    cause: 'The feed’s keys were replaced so often, or in such a way, that this old executable cannot follow.',
    fix: 'Install a newer release by hand, with its `install.sh` from a place that you trust.',
  },
  clock_wrong: {
    cause: 'This host’s clock is before the day on which the executable was built.',
    fix: 'Set the clock, for instance with `timedatectl set-ntp true`, and try again.',
  },
  yanked: {
    cause: 'The publisher has yanked this release; the message has the reason.',
    fix: 'Choose another release.',
  },
  not_signed: {
    cause: 'The release exists, and the maintainer has not signed it.',
    fix: 'The maintainer signs it with `baton trust sign`. Until then choose a signed one.',
  },
  check_failed: {
    cause: 'The feed could not be reached or read: the network, a proxy, a wrong address, a missing token.',
    fix: 'Open the feed’s address from this host. `doctor` tries it, and says what fails.',
  },
  release_not_found: {
    cause: 'The feed has no release with this tag. A private repository looks empty without a token.',
    fix: 'Check the tag, and the setting `feed`. [Where releases come from](../operator/update.md#where-releases-come-from) tells about tokens.',
  },
  release_unusable: {
    cause: 'The release has no executable for this platform, or lacks a checksum, or its texts contradict each other.',
    fix: 'Choose another release. The maintainer builds it for this platform or publishes it again.',
  },
  rate_limited: {
    cause: 'The feed answers no more requests for now. GitHub allows 60 an hour without a token.',
    fix: 'Wait until the time in the message, or give the service a token ([Where releases come from](../operator/update.md#where-releases-come-from)).',
  },
  download_failed: {
    cause: 'The download broke off again and again, brought nothing for too long, or the disk is full.',
    fix: 'Try again: it goes on where it stopped. On a slow line, raise `update.stallTimeout`.',
  },
  verify_failed: {
    cause:
      'What was downloaded has another checksum than the release names, or it does not run, or not on a copy of the data.',
    fix: 'Nothing has changed. Try once more; if it fails again, tell the maintainer what the message says.',
  },
  swap_failed: {
    cause:
      'The new executable could not be put in place, or the database could not be saved before: mostly disk space or rights.',
    fix: 'The old version still runs. Correct what the message names and try again.',
  },
  restart_failed: {
    cause: 'The new version did not start, or not in time. The old one serves again.',
    fix: 'Read the last lines in the message and the service’s log. If it needs longer, raise `update.readyTimeout`.',
  },
  probation_failed: {
    cause: 'The new version started, then crashed, hung or became unhealthy. The old one serves again.',
    fix: 'Read the service’s log of that time, and report it to the maintainer. `latest` skips this release here.',
  },
  cannot_update_further: {
    cause: 'The new version runs, but could not install later updates, so it was put back.',
    fix: 'The message says what it lacks: mostly the feed’s address or a file’s rights.',
  },
  undo_failed: {
    cause: 'An update failed, and the old version could not be put back.',
    fix: 'Look at the host: `status` and the log. `install.sh upgrade TAG` installs a release over it.',
  },
  irreversible: {
    cause: 'On a copy of the data, the present version did not work with what the new one had changed.',
    fix: 'Keep a backup. Then allow it for this update: the tick in the panel, `allowIrreversible` in the request, `--allow-irreversible`.',
  },
  schema_newer: {
    cause: 'The version that runs has changed the data so that the backup cannot work with them.',
    fix: 'Roll back with the data (`--restore-state`): it takes the snapshot, and keeps what was written since aside.',
  },
  busy: {
    cause: 'Requests went on for so long that the switch found no quiet moment, and `update.busy` is `give-up`.',
    fix: 'Try again when less is going on, or set `update.busy` to `cut`.',
  },
  cancelled: {
    cause: 'Somebody cancelled the operation before its swap.',
    fix: 'Nothing has changed. Start it again when you want it.',
  },
  interrupted: {
    cause: 'The process that carried the operation out was killed or stopped, or the host went down.',
    fix: 'The service has cleared up by itself: `status` says what runs. Then try again.',
  },
  locked: {
    cause: 'Another command or the service itself holds the lock of this install.',
    fix: 'Wait for it, or give the command `--lock-timeout`. The lock ends with the process that holds it.',
  },
  service_down: {
    cause: 'Nobody answers at the service’s address.',
    fix: 'Read its log, then start it. `doctor` says what keeps it from starting.',
  },
  unexpected: {
    cause: 'Something happened that nobody foresaw.',
    fix: 'The message, or the service’s log, has the first cause. Please report it with both.',
  },
}

const INTRODUCTION = `# Error codes

Each refusal and each failed operation has a code, which stays the same; its message is for people and may change. In an HTTP answer it is
\`code\`, and \`type\` is the address of its entry here. The command line ends with the exit code. \`npm run pages\` writes this page.
`

/** Content of docs/reference/errors.md. */
export function errorsPage(): string {
  const entries = Object.entries(ENTRIES).map(([code, { cause, fix }]) => {
    const { status, exit, title } = MEANINGS[code as ErrorCode]
    const says = EXITS[exit as keyof typeof EXITS]
    return `## ${code}\n\n*${title}*: HTTP ${status}, exit code ${exit} (${says})\n\n- Cause: ${cause}\n- What to do: ${fix}\n`
  })
  return [INTRODUCTION, ...entries].join('\n')
}
