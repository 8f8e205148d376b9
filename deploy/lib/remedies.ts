// What causes each error, and what to do: for the page of the errors, and for a command whose error has no hint of its own. Pure.
// The texts are not in agent/words/errors.ts: a service would load them to serve.

import type { ErrorCode } from '../../agent/words.ts'

interface Remedy {
  /** sentences */
  cause: string
  fix: string
  /** for a command whose message says what to mend: what else is to be said, null: nothing; absent: the fix */
  hint?: string | null
}

export const REMEDIES: Readonly<Record<ErrorCode, Remedy>> = {
  unauthorized: {
    cause: 'The request has neither the right password (`dashboard.password`) nor a login with permission to update.',
    fix: 'Send `Authorization: Bearer PASSWORD`, where PASSWORD is `dashboard.password` in `config.json`, or log in as a user with permission to update.',
  },
  no_password: {
    cause: '`dashboard.password` is empty, so nobody can update this service over HTTP.',
    fix: 'Set `dashboard.password` in `config.json` and restart the service. The command line needs no password.',
  },
  too_many_failures: {
    cause: 'Too many wrong passwords came from one address, which may be a proxy’s.',
    fix: 'Send the correct password; it is accepted immediately. Behind a proxy, set `dashboard.trustedProxy`.',
  },
  invalid_request: {
    cause:
      'The request body is not JSON, it has an unknown field or a value of the wrong type, or the request has two `Host` headers.',
    fix: 'Fix the reported problem.',
    hint: null,
  },
  invalid_tag: {
    cause: 'The tag does not have the form `vX.Y.Z`.',
    fix: 'Use a tag that the feed lists, such as `v1.2.0`.',
    hint: null,
  },
  body_too_large: {
    cause: 'The request body is larger than this endpoint accepts.',
    fix: 'Send only the fields that the endpoint expects.',
  },
  not_found: {
    cause: 'There is no such endpoint, or no record of an operation with this ID.',
    fix: 'Check the path, including the `basePath` if one is set.',
  },
  method_not_allowed: {
    cause: 'The path exists, but does not accept this method.',
    fix: 'Use a method that the `Allow` header lists.',
  },
  update_in_flight: {
    cause: 'Another update or rollback is running; only one can run at a time.',
    fix: 'Wait until it finishes: check with `GET /admin/update/status?wait=30` or the `status` command.',
  },
  too_late: {
    cause: 'There is nothing to cancel: no operation is running, or the new release is already being installed.',
    fix: 'Wait for the outcome, then roll back if you want the old version.',
  },
  no_backup: {
    cause: 'No update has left a backup executable here yet.',
    fix: 'Specify a release instead: `rollback vX.Y.Z`, or `POST /admin/update` with that tag.',
  },
  not_managed: {
    cause: 'The process runs in a container, from source, or from a file that `install.sh` did not install.',
    fix: 'Update as described by `route` in the response, or install the service with `install.sh`.',
  },
  node_unsupported: {
    cause: 'The executable’s Node version does not support handover.',
    fix: 'Replace the executable with one built on Node 26.1 or later, and restart.',
  },
  invalid_settings: {
    cause: 'A setting, a flag or a release’s configuration has the wrong type or is out of range.',
    fix: 'Fix the reported problem. [settings.md](settings.md) lists the allowed values.',
  },
  unsupported_host: {
    cause:
      'This host is not running Linux with glibc, a required program is missing, or its systemd or container engine is too old.',
    fix: 'Install what the message asks for. `doctor` lists everything that is missing.',
  },
  refused: {
    cause:
      'The request would cause problems (for example, fill the disk or make clients wait too long), or needs your consent.',
    fix: 'Nothing has changed. Fix the reported problem, then try again.',
    hint: 'nothing has changed',
  },
  metadata_missing: {
    cause: 'This executable accepts only signed releases, and the feed has no signatures.',
    fix: 'Ask the maintainer to sign the feed with `baton trust sign`. A mirror must also copy the metadata.',
  },
  metadata_expired: {
    cause: 'The feed’s signatures have expired, or this host’s clock is ahead.',
    fix: 'Check the clock. If it is right, ask the maintainer to run `baton trust refresh`.',
  },
  metadata_older: {
    cause: 'This host has already seen newer metadata: the feed is an outdated mirror, or this is an attack.',
    fix: 'Use the original feed. If this is the original feed, ask the maintainer before you update.',
  },
  metadata_mixed: {
    cause: 'The feed was read while it was being published, or a cache mixes old and new files.',
    fix: 'Try again in a minute. If the problem persists, clear the cache in front of the feed.',
  },
  metadata_invalid: {
    cause: 'The feed’s metadata cannot be read, or belongs to another service.',
    fix: 'Check the `feed` setting. If it is right, ask the maintainer to publish the metadata again.',
  },
  signature_missing: {
    cause: 'The feed is not signed by a key that this executable trusts.',
    fix: 'Do not update: someone else may be writing to the feed. Ask the maintainer.',
  },
  threshold_not_met: {
    cause: 'The feed has fewer signatures than its root requires.',
    fix: 'Ask the maintainer to add the missing signatures, then update again.',
  },
  root_unreachable: {
    cause: 'The feed’s keys were replaced in a way that this old executable cannot verify.',
    fix: 'Install a newer release with its `install.sh`, from a source that you trust.',
  },
  clock_wrong: {
    cause: 'This host’s clock is set to a time before this executable was built.',
    fix: 'Set the clock (`timedatectl set-ntp true`) and try again.',
  },
  yanked: {
    cause: 'The publisher has yanked this release; the message says why.',
    fix: 'Choose another release.',
  },
  not_signed: {
    cause: 'The release exists, but the maintainer has not signed it.',
    fix: 'Ask the maintainer to sign this release with `baton trust sign`. Until then, choose a signed release.',
  },
  check_failed: {
    cause: 'The feed could not be reached or read. Check the network, proxy, address and token.',
    fix: 'Check that this host can reach the feed’s address: `doctor` tests it and reports what fails.',
  },
  release_not_found: {
    cause: 'The feed has no release with this tag. A private repository looks empty without a token.',
    fix: 'Check the tag, the `feed` setting and [the token](../operator/update.md#where-releases-come-from).',
  },
  release_unusable: {
    cause: 'The release has no executable for this platform, or its files contradict each other.',
    fix: 'Choose another release, or ask the maintainer to build this one for your platform or republish it.',
  },
  rate_limited: {
    cause: 'The feed is refusing requests for now. Without a token, GitHub allows 60 requests an hour.',
    fix: 'Wait until the time shown in the message, or give the service [a token](../operator/update.md#where-releases-come-from).',
  },
  download_failed: {
    cause: 'The connection broke repeatedly, no data arrived for too long, or the disk is full.',
    fix: 'Nothing has changed, so try again. The message gives the cause.',
  },
  verify_failed: {
    cause: 'The download has the wrong checksum, does not run, or does not work on a copy of the data.',
    fix: 'Nothing has changed. Try again; if that fails, send the message to the maintainer.',
  },
  swap_failed: {
    cause:
      'The new executable could not be installed, or the snapshot failed. The usual cause is disk space or permissions.',
    fix: 'The old version is still running. Fix the reported problem and try again.',
  },
  restart_failed: {
    cause: 'The new version failed to start, or started too slowly. The old one is serving again.',
    fix: 'Read the end of the message and the log. If startup needs more time, raise `update.readyTimeout`.',
  },
  probation_failed: {
    cause: 'The new version started, then crashed, hung or became unhealthy. The old one is serving again.',
    fix: 'Run `<service> logs --lines 500` and send the service’s output from that time to its maintainer. `latest` now skips this release on this host.',
  },
  cannot_update_further: {
    cause: 'The new version runs but would be unable to install later updates, so the old one was restored.',
    fix: 'Fix the reported problem: usually the feed’s address or a file’s permissions.',
  },
  undo_failed: {
    cause: 'An update failed, and the old version could not be restored.',
    fix: 'Check `status` and the log. To install a release over the failed one, run `install.sh upgrade TAG`.',
  },
  irreversible: {
    cause: 'In the trial, the current release could not run on the data after the new release had changed it.',
    fix: 'Copy the database (`snapshot`). Then allow this update: select the checkbox in the panel, send `allowIrreversible`, or pass `--allow-irreversible`.',
  },
  schema_newer: {
    cause: 'The running version has changed the data, so the backup executable cannot use it.',
    fix: 'Roll back with `--restore-state`, which restores the snapshot and sets the current data aside.',
  },
  busy: {
    cause: 'Requests or background work did not finish in time, so the update was abandoned (`update.busy`).',
    fix: 'Try again later, add [streams that never end](../author/order.md#streams-that-nobody-registers) to `longLivedPaths`, or set `update.busy` to `cut`.',
  },
  cancelled: {
    cause: 'Someone cancelled the operation.',
    fix: 'Nothing has changed. Start the operation again when you want to.',
  },
  interrupted: {
    cause: 'The operation’s process was killed or stopped, or the host went down.',
    fix: 'The service has cleaned up: `status` shows what is running. Try again.',
  },
  locked: {
    cause: 'Another command, or the service itself, holds the lock on this install.',
    fix: 'Wait until that process ends, or pass `--lock-timeout`.',
  },
  service_down: {
    cause: 'Nothing answers at the service’s address.',
    fix: 'Read the service’s log, then start the service. `doctor` reports what keeps it from starting.',
  },
  unexpected: {
    cause: 'Baton ran into an unexpected error.',
    fix: 'Please report it, with the message and the service’s log.',
  },
}

/** What to do, for a terminal: a host with an install has no pages that a link could lead to. */
export function remedyOf(code: ErrorCode): string | null {
  const { fix, hint } = REMEDIES[code]
  if (hint !== undefined) return hint
  const text = plainFix(fix).replace(/\.$/, '')
  return /^[A-Z][a-z]/.test(text) ? text.charAt(0).toLowerCase() + text.slice(1) : text
}

/** `[a token](page.md)` is for the page. */
export function plainFix(text: string): string {
  return text.replaceAll(/\[([^\]]+)\]\([^)]+\)/g, '$1')
}
