#!/bin/sh
# Makes a service of this host out of a package of npm, and keeps it up to date: deploy/deploy-npm.ts.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
. "$here/lib/node.sh"
run_here deploy-npm.ts "$@"
