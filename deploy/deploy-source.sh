#!/bin/sh
# Builds a release from source and deploys it to this host: deploy/deploy-source.ts.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
if [ ! -x "$here/../node_modules/.bin/tsx" ]; then
  (cd "$here/.." && npm ci --ignore-scripts >&2)
fi
. "$here/lib/node.sh"
run_here deploy-source.ts "$@"
