#!/bin/sh
# Deploys a release to this host without asking: deploy/deploy-systemd.ts, with this repository's own Node where it has one.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
PATH="$here/../node_modules/.bin:$PATH" exec node --disable-warning=ExperimentalWarning "$here/deploy-systemd.ts" "$@"
