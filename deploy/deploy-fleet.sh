#!/bin/sh
# Moves a fleet of hosts to a release, in waves: deploy/deploy-fleet.ts.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
. "$here/lib/node.sh"
run_here deploy-fleet.ts "$@"
