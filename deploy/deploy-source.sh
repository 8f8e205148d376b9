#!/bin/sh
# Builds a release from source and deploys it to this host: deploy/deploy-source.ts, with this repository's own Node.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
if [ ! -x "$here/../node_modules/.bin/tsx" ]; then
  (cd "$here/.." && npm ci --ignore-scripts >&2)
fi
PATH="$here/../node_modules/.bin:$PATH" exec node --disable-warning=ExperimentalWarning "$here/deploy-source.ts" "$@"
