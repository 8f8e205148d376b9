#!/bin/sh
# Deploys a release to this host without asking: deploy/deploy-systemd.ts.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
. "$here/lib/node.sh"
run_here deploy-systemd.ts "$@"
