#!/bin/sh
# All that runs on a host. It is sent over ssh on stdin, writes nothing and needs no Python.
#   sh -s -- COMMAND VERB...   each VERB is one call of the managed install's own command, such as `status --json`
# Prints `@platform`, which tells hosts apart by what they take. Then, for each VERB: `@began VERB`, the command's stdout,
# `@ended CODE`. The shell splits a VERB at its blanks: the controller puts only words, tags and numbers into it.
# shellcheck disable=SC2086
set -f
PATH=${PATH:-/usr/bin:/bin}:/usr/local/bin:${HOME:-/root}/.local/bin
command=$1
shift
# run the kit's commands, even if the release keeps them behind the word `baton`: the controller does not know the release
export BATON_COMMAND=1
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
