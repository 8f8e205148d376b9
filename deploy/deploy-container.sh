#!/bin/sh
# Deploys a release to a container: deploy/deploy-container.ts.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
. "$here/lib/node.sh"
run_here deploy-container.ts "$@"
