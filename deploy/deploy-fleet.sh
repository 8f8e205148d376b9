#!/bin/sh
# Moves a fleet of hosts to a release, in waves: deploy/deploy-fleet.ts, with this repository's own Node where it has one.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
PATH="$here/../node_modules/.bin:$PATH" exec node --disable-warning=ExperimentalWarning "$here/deploy-fleet.ts" "$@"
