#!/bin/sh
# What runs on a host, and all that runs there: sent over ssh on stdin, nothing is written, no Python is needed.
#   sh -s -- COMMAND VERB...   each VERB is one call of the managed install's own command, such as `status --json`
# Answers `@began VERB`, what the command says on stdout, `@ended CODE`; and `@platform`, which tells hosts apart by what they take.
# A VERB is split at its blanks: the controller puts words, tags and numbers into it and nothing else.
# shellcheck disable=SC2086
set -f
PATH=${PATH:-/usr/bin:/bin}:/usr/local/bin:${HOME:-/root}/.local/bin
command=$1
shift
echo "@platform $(uname -sm)"
# `docker run … IMAGE` is more than one word
if ! command -v ${command%% *} >/dev/null 2>&1; then
  echo '@missing'
  exit 0
fi
for verb; do
  echo "@began $verb"
  code=0
  $command $verb </dev/null || code=$?
  echo
  echo "@ended $code"
done
exit 0
