#!/bin/sh
# shellcheck shell=dash
#
# Installs, upgrades, rolls back and removes a service on this host. It needs no Node here: it fetches the executable of a
# release, verifies it and runs it. The commands themselves are inside the executable.
#
#   curl -fsSL https://…/install.sh | sh                      install (asks on the terminal; -y does not ask)
#   install.sh [install] [TAG|latest] [--feed FEED] [--user|--system] [--prefix DIR] [--state-dir DIR]
#              [--listen HOST:PORT] [--no-service] [--no-start] [-n|--dry-run] [--json] [-y] [-q] [-v]
#   install.sh --clone DIR [...]                           build a release from that clone, and install it
#   install.sh upgrade [TAG] | rollback [TAG] | cancel | status | check | releases | logs | start | stop | restart | state |
#              doctor | uninstall
#   --release TAG is the same as TAG, for scripts
#
# The install.sh of a release fetches only that release, by the sha256 in this file. Once verified, the executable itself handles
# other releases, the latest one and the feed's signatures.
# A release's script never looks for a clone, and a clone's script builds only what `--clone` names: under `curl | sh` anybody may
# have made the working folder. As root the script neither runs nor believes anything that anybody but root can change.
#
# FEED: https://host/path/ · http://127.0.0.1:PORT/path/ (plain http to this host only) · /folder · github:OWNER/NAME
# Exit codes: `install.sh help exit-codes`
#
# Safe if the download is cut short: the whole script is one compound command, which a shell runs only after its closing brace.
{

# `npm run build` fills these in for the install.sh of a release: its service, feed, tag, and the sha256 of its .gz assets.
BATON_SERVICE=
BATON_FEED=
BATON_TAG=
BATON_SHA256_LINUX_X64=
BATON_SHA256_LINUX_ARM64=
BATON_SHA256_DARWIN_X64=
BATON_SHA256_DARWIN_ARM64=

main() {
  set -u
  # run the kit's commands, even if the release keeps them behind the word `baton`
  export BATON_COMMAND=1
  umask 022
  service=${BATON_SERVICE:-beacon}
  scratch=
  ! is_root || leave_strange_home
  case $#${1-} in
    1-v | 1--version)
      printf '%s\n' "$service ${BATON_TAG:-(this install.sh belongs to no release)}"
      exit 0
      ;;
  esac
  read_environment
  read_arguments "$@"
  case $command in
    help)
      if [ "$topic" = exit-codes ]; then
        exit_codes
        exit 0
      fi
      # the installed executable knows the flags of its commands
      [ "$topic" = install ] || [ -z "$topic" ] || ! find_installed || exec "$installed" help "$topic" ${full:+--all}
      usage "${full:-${topic:-first}}"
      exit 0
      ;;
    install) ;;
    *)
      # every other command needs an existing install, except doctor; of a clone there is only an install, and what doctor says of one
      [ -z "$clone" ] || [ "$command" = doctor ] || no_clone
      if find_installed; then
        [ -z "$clone" ] || no_clone
        run_command "$installed" "$@"
      fi
      [ "$command" = doctor ] || no_install
      ;;
  esac
  detect_host
  choose_temporary
  choose_feed
  [ -n "$feed" ] || [ -z "$stranger" ] || no_flag
  [ -n "$feed" ] || die 2 "expected a feed, got none" "name a feed with \`--feed\` or a clone with \`--clone\`, or run the install.sh of a release"
  check_feed
  check_target
  make_scratch
  if [ -n "$BATON_TAG" ]; then tag=$BATON_TAG; else resolve_tag; fi
  say "fetching $service $tag for $os $arch from $feed"
  fetch_executable
  export BATON_DEFAULT_FEED="$feed"
  # in a process of its own: the folder is removed after the command
  (run_command "$scratch/$service" "$@")
  code=$?
  [ "$code" -ne 126 ] || die 7 "cannot run programs in $scratch" "set TMPDIR to a place that is not mounted noexec"
  exit "$code"
}

usage() {
  cat <<'TEXT'
install.sh [install] [TAG|latest] [flags]     install a release (the one this script came with, or latest)
install.sh COMMAND [flags]                    run a command of the installed service, like `SERVICE COMMAND`:
  upgrade [TAG]  rollback [TAG]  cancel  status  check  releases  logs  start  stop  restart  state  doctor  uninstall

  --feed FEED            https://host/path/, http://127.0.0.1:PORT/path/, /folder, github:OWNER/NAME
  --user                 install for this user (root's default: system-wide)
  --state-dir DIR        data directory; kept across updates
  --listen HOST:PORT     listen address for a first install; `:PORT` means every address
  --no-service           on a first install, do not create a systemd service
  -n, --dry-run          print the plan and change nothing
  -y, --yes              do not ask for confirmation
  --json                 print one JSON object per line on stdout
TEXT
  case $1 in
    first) printf '\n%s\n' "\`--help --all\` shows more flags; \`help exit-codes\` explains the exit codes" ;;
    *)
      cat <<'TEXT'
  --release TAG|latest   the same as TAG, for scripts
  --clone DIR            build from this clone, whose dist/ becomes the feed; not in the script of a release
  --system               install system-wide (root's default)
  --prefix DIR           directory of the executable
  --run-as USER          user that a system service runs as
  --no-start             do not start the service
  --accept-unit          grant the extra systemd permissions that the release requests; -y alone does not
  -q, --quiet            print errors only
  -v, --verbose          print more details

once the service is installed, `SERVICE COMMAND --help` shows the flags of a command
TEXT
      ;;
  esac
}

exit_codes() {
  cat <<'TEXT'
Exit codes:

  0  done, or nothing to do
  1  unexpected error
  2  usage error
  3  unsupported host
  4  network error, or release not found
  5  verification failed; nothing changed
  6  locked by another operation
  7  refused
  8  the new version failed; the previous one is running
  9  the service is down
TEXT
}

# Runs a command of an executable in this process's place. Two flags are this script's own: the executable has no --clone, and takes
# a release as a word.
run_command() {
  program=$1
  shift
  skip=
  for word in "$@"; do
    shift
    case $skip$word in
      skip*) skip= ;;
      --clone | --release) skip=skip ;;
      --clone=* | --release=*) ;;
      *) set -- "$@" "$word" ;;
    esac
  done
  [ -z "$flagged" ] || set -- "$@" "$flagged"
  [ -z "$clone" ] || set -- "$@" --feed "$feed"
  exec "$program" ${implied:+install} "$@"
}

# Flags beat environment. This script reads BEACON_INSTALL_FEED, _RELEASE, _PREFIX and _SCOPE; the executable reads the rest.
read_environment() {
  variables=$(printf '%s' "$service" | tr '[:lower:]' '[:upper:]' | tr -c '[:upper:][:digit:]' '_')_INSTALL_
  eval "release=\${${variables}RELEASE-}"
  eval "feed=\${${variables}FEED-}"
  eval "prefix=\${${variables}PREFIX-}"
  eval "scope=\${${variables}SCOPE-}"
}

read_arguments() {
  command=
  quiet=
  implied=
  flagged=
  worded=
  clone=
  named_feed=
  stranger=
  help=
  topic=
  full=
  while [ $# -gt 0 ]; do
    case $1 in
      --release=*) flagged=${1#*=} ;;
      --feed=*) feed=${1#*=} named_feed=1 ;;
      --prefix=*) prefix=${1#*=} ;;
      --clone=*) clone=${1#*=} ;;
      --state-dir=* | --listen=* | --run-as=* | --confirm=* | --health-url=* | --health-timeout=* | --lock-timeout=* | --pause-until=* | --lines=*) ;;
      --release | --feed | --clone | --prefix | --state-dir | --listen | --run-as | --confirm | --health-url | \
        --health-timeout | --lock-timeout | --pause-until | --lines)
        [ $# -ge 2 ] || die 2 "expected a value after $1"
        case $1 in
          --release) flagged=$2 ;;
          --feed) feed=$2 named_feed=1 ;;
          --prefix) prefix=$2 ;;
          --clone) clone=$2 ;;
        esac
        shift
        ;;
      --user) scope=user ;;
      --system) scope=system ;;
      -q | --quiet | --json) quiet=1 ;;
      -h | --help) help=1 ;;
      --all) full=all ;;
      -n | --dry-run | -y | --yes | -v | --verbose | --service | --no-service | --start | --no-start | --accept-unit | --allow-irreversible | \
        --restore-state | --trial | --unpause | --now | --purge | -f | --follow) ;;
      # the executable reads the other flags, and refuses those that it does not know
      -*) stranger=${stranger:-${1%%=*}} ;;
      *)
        if [ -z "$command" ] && { [ "$1" = latest ] || is_tag "$1"; }; then
          command=install implied=1 worded=$1
        elif [ -z "$command" ]; then
          command=$1
        elif [ "$command" = install ]; then
          worded=${worded:-$1}
        elif [ "$command" = help ]; then
          topic=${topic:-$1}
        fi
        ;;
    esac
    shift
  done
  if [ -n "$help" ] && [ "$command" != help ]; then topic=$command command=help; fi
  case $command in
    '') command=install implied=1 ;;
    install | doctor | upgrade | rollback | cancel | status | check | releases | logs | start | stop | restart | state | uninstall | help) ;;
    *)
      # this may be the value of a flag that is not known here
      [ -z "$stranger" ] || no_flag
      refuse_word command "$command" "install, upgrade, rollback, cancel, status, check, releases, logs, start, stop, restart, state, doctor and uninstall"
      ;;
  esac
  # the executable of this script's own release knows no other ones either: say so before it is fetched
  [ "$command" != install ] || [ -z "$BATON_TAG" ] || [ -z "$stranger" ] || no_flag
  [ -z "$clone" ] || [ -z "$named_feed" ] || die 2 "expected \`--clone\` or \`--feed\`, got both"
  [ -z "$clone" ] || [ -z "$BATON_TAG" ] ||
    die 2 "\`--clone\` does not work with this install.sh, which belongs to the release $service $BATON_TAG" "run the clone's own install.sh"
  [ -z "$flagged" ] || [ -z "$worded" ] || die 2 "expected one release, got $worded and --release $flagged"
  release=${flagged:-${worded:-${release:-${BATON_TAG:-latest}}}}
  [ "$release" = latest ] || is_tag "$release" || die 2 "expected a tag of the form vX.Y.Z or latest, got $release"
}

no_clone() {
  die 2 "\`--clone\` cannot be used with $command" "to build a release from the clone and move this install to it, use \`install --clone $clone\`"
}

no_flag() {
  refuse_word flag "$stranger" "--release, --feed, --clone, --user, --system, --prefix, --state-dir, --listen, --run-as, --no-service, --no-start, --accept-unit" ", or see \`install.sh --help\`"
}

# A word that is none of LIST: names the one that was meant, if that is plain, else all of them.
refuse_word() {
  case $2 in
    update) meant=upgrade ;;
    *) meant=$(nearest "$2" "$3, --help, --version, --json, --dry-run, --yes, --quiet, --verbose") ;;
  esac
  [ -z "$meant" ] || die 2 "unknown $1 \`$2\`" "did you mean \`$meant\`?"
  die 2 "unknown $1 \`$2\`" "choose from $3${4-}"
}

# Prints the word of a list with at most two letters missing, too many, wrong or exchanged with their neighbour. A host without awk
# gets the list.
nearest() {
  printf '%s\n' "$2" | sed 's/,* and /,/; s/, */\n/g' | WORD=$1 awk '
    function least(a, b) { return a < b ? a : b }
    {
      word = ENVIRON["WORD"]
      m = length(word); n = length($0)
      for (i = 0; i <= m; i++) for (j = 0; j <= n; j++) {
        if (!i || !j) { d[i, j] = i + j; continue }
        a = substr(word, i, 1); b = substr($0, j, 1)
        d[i, j] = least(least(d[i - 1, j], d[i, j - 1]) + 1, d[i - 1, j - 1] + (a != b))
        if (i > 1 && j > 1 && a == substr($0, j - 1, 1) && b == substr(word, i - 1, 1)) d[i, j] = least(d[i, j], d[i - 2, j - 2] + 1)
      }
      if (d[m, n] < (found == "" ? 3 : best) && d[m, n] < n / 2) { best = d[m, n]; found = $0 }
    }
    END { print found }' 2>/dev/null
}

# Finds the receipt that counts: root's own for the whole host; for a user the one beside the user's executable, else, without
# `--user`, root's. Also sets $place, the directory of the executable.
find_receipt() {
  receipt=
  place=${prefix:-${HOME:-}/.local/share/$service}
  if for_host; then
    place=${prefix:-/opt/$service}
    receipt=/usr/local/lib/$service/receipt.json
  elif [ -f "$place/receipt.json" ]; then
    receipt=$place/receipt.json
  elif [ "$scope" != user ]; then
    receipt=/usr/local/lib/$service/receipt.json
  fi
  [ -n "$receipt" ] && [ -f "$receipt" ] || return 1
  if is_root; then
    folder=$(resolved "$(dirname -- "$receipt")") || return 1
    receipt=${folder%/}/receipt.json
  fi
  ! is_root || only_roots "$receipt" || die 7 "expected $receipt to be owned by root and writable by root alone" "run this script as the user that owns the install"
  # a release that is a script runs with the Node that it was installed with
  node=$(sed -n 's/^ *"node": *"\([^"\\]*\)",*$/\1/p' "$receipt" | head -n 1)
  [ -z "$node" ] || export BATON_NODE="${BATON_NODE:-$node}"
}

for_host() {
  [ "$scope" = system ] || { is_root && [ "$scope" != user ]; }
}

is_root() {
  [ "$(id -u)" -eq 0 ]
}

# Prints the folder's own path, without links: what is checked must be what is used, and a link may be exchanged in between.
resolved() {
  (CDPATH='' cd -P -- "$1" 2>/dev/null && pwd -P)
}

# As root: if anybody else can write to HOME (`sudo -E` keeps the user's), root's own home is used. What curl, wget, git and npm
# read there can make root run programs and write files. `--user` then means root.
leave_strange_home() {
  home=$(resolved "${HOME:-/nowhere}") || home=
  if [ -n "$home" ] && only_roots "$home"; then
    # in a sticky folder everybody can make files
    case $(ls -ldn -- "$home") in
      d????????[tT]*) ;;
      *)
        export HOME="$home"
        return 0
        ;;
    esac
  fi
  HOME=$(sed -n '/^[^:]*:[^:]*:0:/{s|^[^:]*:[^:]*:0:[^:]*:[^:]*:\(/[^:]*\):.*|\1|p;q;}' /etc/passwd 2>/dev/null)
  export HOME="${HOME:-/root}"
  unset XDG_CONFIG_HOME XDG_CACHE_HOME XDG_DATA_HOME XDG_STATE_HOME CURL_HOME WGETRC SYSTEM_WGETRC
  for name in $(env 2>/dev/null | sed -n 's/^\([Nn][Pp][Mm]_[Cc][Oo][Nn][Ff][Ii][Gg]_[A-Za-z0-9_]*\)=.*/\1/p'); do unset "$name"; done
}

# Whether nobody but root can change what is at this path: the file itself, and every folder above it. In a sticky folder such as
# /tmp anybody may make names, but nobody else can replace root's. With `unshared` even such a folder is refused.
only_roots() {
  unshared=${2-}
  part=$(CDPATH='' cd -P -- "$(dirname -- "$1")" 2>/dev/null && pwd -P) || return 1
  part=${part%/}/$(basename -- "$1")
  while :; do
    # shellcheck disable=SC2046 # the words are what is wanted
    set -- $(ls -ldn -- "$part" 2>/dev/null)
    [ "${3-}" = 0 ] || return 1
    case $1 in
      l*) return 1 ;;
      d????????[tT]*) [ -z "$unshared" ] || return 1 ;;
      ????????w* | ?????w*+) return 1 ;;
      ?????w*) [ "$4" = 0 ] || return 1 ;;
    esac
    [ "$part" != / ] || return 0
    part=$(dirname -- "$part")
  done
}

# Flags beat environment beat receipt beat what the script came with.
choose_feed() {
  if [ -n "$clone" ]; then
    build_from_clone
    return 0
  fi
  [ -z "$feed" ] || return 0
  if find_receipt; then
    feed=$(sed -n 's/^ *"feed": *"\([^"\\]*\)",*$/\1/p' "$receipt" | head -n 1)
  fi
  feed=${feed:-$BATON_FEED}
  [ -n "$feed" ] || feed=$(published_beside)
}

# Prints the feed's folder, if a release's script lies in the folder where it was published. A script from a pipe lies nowhere.
published_beside() {
  [ -n "$BATON_TAG" ] && [ "${0##*/}" = install.sh ] || return 0
  here=$(CDPATH='' cd -- "$(dirname -- "$0")" 2>/dev/null && pwd) || return 0
  [ "${here##*/}" = "$BATON_TAG" ] && [ -f "${here%/*}/releases.json" ] || return 0
  # the owner of this script controls it anyway; nobody else (but root and this user) may be able to change its feed
  # shellcheck disable=SC2046 # the words are what is wanted
  set -- $(ls -ldLn -- "$0" 2>/dev/null)
  author=${3-}
  # shellcheck disable=SC2046
  set -- $(ls -ldn -- "${here%/*}/." 2>/dev/null)
  case ${3-} in 0 | "$author" | "$(id -u)") ;; *) return 0 ;; esac
  case $1 in
    ????????w* | ?????w*+) return 0 ;;
    ?????w*) [ "$4" = 0 ] || return 0 ;;
  esac
  printf '%s' "${here%/*}"
}

# Finds the program that runs the commands of an install. For the whole host it is root's own copy; for a user it is the
# executable, or the backup if the executable no longer runs.
find_installed() {
  installed=
  find_receipt || return 1
  program=$(dirname -- "$receipt")/$service
  for executable in "$program" "$program.backup"; do
    [ -f "$executable" ] || continue
    ! is_root || only_roots "$executable" || die 7 "did not run $executable: it must be owned by root and writable by root alone" "run \`install.sh\` to replace it with a copy owned by root"
    case $("$executable" --version 2>/dev/null) in
      "$service v"*)
        installed=$executable
        return 0
        ;;
    esac
  done
  return 1
}

no_install() {
  for_host && [ -e "$place/receipt.json" ] &&
    die 7 "the install of $service in $place was made by an earlier install.sh" "run \`install.sh\` without a command: it takes over that install"
  die 7 "$service is not installed on this host" "run \`install.sh\` to install it"
}

detect_host() {
  case $(uname -s) in
    Linux) os=linux ;;
    Darwin) os=darwin ;;
    *) die 3 "expected Linux or macOS, got $(uname -s)" "see the guide to starting the binary manually" ;;
  esac
  case $(uname -m) in
    x86_64 | amd64) arch=x64 ;;
    aarch64 | arm64) arch=arm64 ;;
    *) die 3 "expected an x86_64 or arm64 machine, got $(uname -m)" ;;
  esac
  [ "$os" = linux ] || return 0
  # a 64-bit kernel may run 32-bit programs only: byte 5 of any program here says which (ELF, EI_CLASS)
  if [ -r /proc/self/exe ]; then
    class=$(dd if=/proc/self/exe bs=1 skip=4 count=1 2>/dev/null | tr '\001\002' '12')
    [ "$class" != 1 ] || die 3 "expected a 64-bit system, got a 32-bit one on a 64-bit kernel"
  fi
  case $arch in
    x64) loader=/lib64/ld-linux-x86-64.so.2 ;;
    arm64) loader=/lib/ld-linux-aarch64.so.1 ;;
  esac
  if [ ! -e "$loader" ]; then
    for musl in /lib/ld-musl-*; do
      [ ! -e "$musl" ] || die 3 "expected glibc, found musl (as in Alpine)" "use a distribution with glibc, or the container image"
    done
    die 3 "expected glibc's loader at $loader, found none" "use a distribution with glibc, or the container image"
  fi
  glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed -n 's/^glibc 2\.\([0-9][0-9]*\).*/\1/p')
  [ -z "$glibc" ] || [ "$glibc" -ge 28 ] || die 3 "expected glibc 2.28 or newer, found 2.$glibc"
}

# Builds a release from a clone, with the clone's own scripts. So for root, nobody but root may be able to change the clone.
build_from_clone() {
  given=$clone
  clone=$(CDPATH='' cd -P -- "$given" 2>/dev/null && pwd -P) || die 2 "expected a clone in $given, found none"
  ! is_root || only_root_writes "$clone" || die 7 "did not build the clone, which users other than root can change: $strange" \
    "clone it into a folder that only root can change, such as /root, or build it as yourself and name its dist/ with \`--feed\`"
  for part in deploy/build.ts package.json; do
    [ -f "$clone/$part" ] || die 2 "expected a clone in $given, found no $part there"
  done
  have npm || die 3 "npm was not found, but is needed to build a release from this clone" "install Node, or name a feed with \`--feed\`"
  if [ ! -d "$clone/node_modules" ]; then
    (cd "$clone" && npm ci --ignore-scripts >&2) || die 1 "npm ci failed in $clone"
  fi
  built=$(newest_tag 2>/dev/null <"$clone/dist/releases.json") || built=
  if [ "$release" = latest ]; then
    [ -z "$built" ] || release=$built
    [ -n "$built" ] || release=v$(sed -n 's/^ *"version": *"\([^"]*\)".*/\1/p' "$clone/package.json" | head -n 1)
  fi
  if [ ! -d "$clone/dist/$release" ]; then
    say "building $release from $clone"
    (cd "$clone" && npm run build -- "$release" --compress fast >&2) || die 1 "npm run build failed in $clone"
  fi
  feed=$clone/dist
}

# Whether nobody but root can write to this folder, to anything in it, or to any folder above it. If not, $strange says why.
only_root_writes() {
  strange="someone else can write to $1, or to a folder above it"
  only_roots "$1" unshared || return 1
  # an error of find counts too
  strange=$(find "$1" \( ! -user 0 -o ! -type l \( -perm -002 -o -perm -020 ! -group 0 \) \) 2>&1 | head -n 1)
  [ -n "$strange" ] || return 0
  strange="someone else can change $strange"
  return 1
}

# Only https, except for this host itself and for folders.
check_feed() {
  case $feed in
    https://*@*) die 2 "the feed must not contain credentials" ;;
    https://?* | github:?*/?* | /* | file:///*) ;;
    http://*) is_loopback "$feed" || die 2 "expected https, got $feed" "plain http is only for feeds on this host" ;;
    *) die 2 "expected a feed such as https://host/path/, /folder or github:OWNER/NAME, got $feed" ;;
  esac
  case $feed in *[!A-Za-z0-9:/@._~%+,=\[\]-]*) die 2 "expected a plain URL or path as the feed, got $feed" ;; esac
  folder=${feed#file://}
  case $folder in
    /*)
      ! is_root || ! is_the_services "$folder" ||
        die 7 "the service must not be able to write to its feed, but $folder belongs to the service's user" "use a folder that the service cannot write to, because root runs the executables in it"
      ;;
  esac
}

# In a URL the text between // and @ is a user name, not a host: any such URL is refused.
is_loopback() {
  authority=${1#http://}
  authority=${authority%%[/?#]*}
  case $authority in
    127.0.0.1 | localhost | '[::1]') return 0 ;;
    127.0.0.1:* | localhost:* | '[::1]':*) ;;
    *) return 1 ;;
  esac
  case ${authority##*:} in '' | *[!0-9]*) return 1 ;; esac
}

is_the_services() {
  owner=$(id -u "$service" 2>/dev/null) || return 1
  # shellcheck disable=SC2046 # the words are what is wanted
  set -- $(ls -ldn -- "$1/." 2>/dev/null)
  [ "${3-}" = "$owner" ] && [ "$owner" != 0 ]
}

# Checks, before anything is fetched, that the directory of the executable can be written and has room for it.
check_target() {
  [ "$command" = install ] || return 0
  find_receipt || :
  target=$place
  [ ! -e "$target/$service" ] || return 0
  while [ ! -d "$target" ]; do target=$(dirname -- "$target"); done
  if [ ! -w "$target" ]; then
    [ "${prefix:-}" != '' ] || is_root || for_host || return 0
    die 7 "cannot write in $target" "if it is read-only, choose another place with \`--prefix\`"
  fi
  free=$(free_kilobytes "$target")
  [ -z "$free" ] || [ "$free" -ge 131072 ] ||
    die 7 "not enough space: expected 128 MB of free space in $target, found $((free / 1024)) MB" "free up disk space, or choose another place with \`--prefix\`"
}

free_kilobytes() {
  df -Pk "$1" 2>/dev/null | sed -n '2s/^[^ ]* *[0-9]* *[0-9]* *\([0-9]*\) .*/\1/p'
}

# Resolves TMPDIR before anything is made in it: a link that somebody else controls could lead elsewhere at each use.
choose_temporary() {
  temporary=$(resolved "${TMPDIR:-/tmp}") || die 7 "cannot make a directory in ${TMPDIR:-/tmp}"
  is_root || return 0
  only_roots "$temporary" ||
    die 7 "users other than root can change the temporary folder ${TMPDIR:-/tmp}" "unset TMPDIR"
  # the build and the executable use it too
  [ -z "${TMPDIR-}" ] || export TMPDIR="$temporary"
}

make_scratch() {
  scratch=$(mktemp -d "${temporary%/}/$service-install.XXXXXXXX") || die 7 "cannot make a directory in $temporary"
  trap 'rm -rf "$scratch"' EXIT
  trap 'exit 129' HUP
  trap 'exit 130' INT
  trap 'exit 143' TERM
  ! is_root || only_roots "$scratch" ||
    die 7 "users other than root can change the temporary folder $temporary" "unset TMPDIR"
  : >"$scratch/wgetrc"
  free=$(free_kilobytes "$scratch")
  [ -z "$free" ] || [ "$free" -ge 204800 ] ||
    die 7 "expected 200 MB of free space in $scratch, found $((free / 1024)) MB" "set TMPDIR to a folder with more space"
}

resolve_tag() {
  tag=$release
  if [ "$tag" = latest ]; then
    case $feed in
      github:*@*)
        fetch "$(github_api)/releases/latest" "$scratch/latest.json" 4 || die 4 "cannot read the latest release in $feed"
        tag=$(tr -d '\n' <"$scratch/latest.json" | sed -n 's/.*"tag_name" *: *"\([^"]*\)".*/\1/p')
        ;;
      github:*) tag=$(latest_by_redirect "https://github.com/${feed#github:}/releases/latest") ;;
      *)
        fetch "$(static_base)releases.json" "$scratch/releases.json" 4 || die 4 "cannot read ${feed%/}/releases.json"
        tag=$(newest_tag <"$scratch/releases.json")
        ;;
    esac
    [ -n "$tag" ] || die 4 "expected a release in $feed, found none"
  fi
  is_tag "$tag" || die 4 "expected a tag of the form vX.Y.Z from $feed, got $tag"
}

# Reads releases.json on stdin; prints the newest tag that is neither a draft nor a prerelease.
newest_tag() {
  tr -d '\n\r\t ' | sed 's/{"tag"/\
{"tag"/g' | grep '^{"tag"' | grep -v '"draft":true' | grep -v '"prerelease":true' |
    sed -n 's/^{"tag":"v\([0-9][0-9]*\.[0-9][0-9]*\.[0-9][0-9]*\)".*/\1/p' |
    sort -t . -k 1,1n -k 2,2n -k 3,3n | sed -n '$s/^/v/p'
}

fetch_executable() {
  asset=$service-$os-$arch.gz
  case $os-$arch in
    linux-x64) expected=$BATON_SHA256_LINUX_X64 ;;
    linux-arm64) expected=$BATON_SHA256_LINUX_ARM64 ;;
    darwin-x64) expected=$BATON_SHA256_DARWIN_X64 ;;
    darwin-arm64) expected=$BATON_SHA256_DARWIN_ARM64 ;;
  esac
  if [ -n "$BATON_TAG" ]; then
    [ -n "$expected" ] || die 3 "$service $tag was not built for $os $arch" "this install.sh supports only the platforms that its release was built for"
  else
    # a clone's script holds no sha256, so it is only as trustworthy as the feed
    say "warning: this install.sh is not part of a release, so it trusts the SHA256SUMS of $feed"
    fetch "$(asset_url SHA256SUMS)" "$scratch/SHA256SUMS" 4 || die 4 "cannot read SHA256SUMS of $tag in $feed" "check that the release exists"
    expected=$(sed -n "s/^\([0-9a-f]\{64\}\)[ ][ *]$asset\$/\1/p" "$scratch/SHA256SUMS")
    case $expected in
      '') die 5 "expected a checksum for $asset in SHA256SUMS of $tag, found none" ;;
      *[!0-9a-f]*) die 5 "expected one checksum for $asset in SHA256SUMS of $tag, found several" ;;
    esac
  fi
  fetch "$(asset_url "$asset")" "$scratch/$asset" 512 ||
    die 4 "cannot download $asset of $tag from $feed" "${BATON_TAG:+check that the feed still has $tag; to install another release, use the install.sh of that release}"
  got=$(sha256 "$scratch/$asset")
  [ "$got" = "$expected" ] || die 5 "sha256 of $asset: expected $expected, got $got" "nothing was changed"
  have gzip || die 3 "found no gzip on this host"
  (bound 1024 && gzip -dc <"$scratch/$asset" >"$scratch/$service") || die 7 "cannot unpack $asset in $scratch" "check that the disk is not full"
  rm -f "$scratch/$asset"
  # the service's user reads the executable during an install
  chmod 755 "$scratch" "$scratch/$service"
  version=$("$scratch/$service" --version 2>"$scratch/error")
  case $? in
    0) ;;
    126) die 7 "cannot run programs in $scratch" "set TMPDIR to a place that is not mounted noexec" ;;
    *)
      hint=
      ! grep -q libatomic "$scratch/error" ||
        hint="as root, run \`apt-get install libatomic1\` (Debian, Ubuntu) or \`dnf install libatomic\` (Fedora, RHEL)"
      die 3 "$asset does not run on this host: $(sed -n '1{s/^error: //;p;}' "$scratch/error")" "$hint"
      ;;
  esac
  [ "$version" = "$service $tag" ] || die 5 "expected $asset to be $service $tag, got $version" "nothing was changed"
}

asset_url() {
  case $feed in
    github:*@*) github_asset "$1" ;;
    github:*) printf 'https://github.com/%s/releases/download/%s/%s' "${feed#github:}" "$tag" "$1" ;;
    *) printf '%s%s/%s' "$(static_base)" "$tag" "$1" ;;
  esac
}

static_base() {
  base=${feed#file://}
  printf '%s/' "${base%/}"
}

# github:OWNER/NAME@https://host/api/v3 -> https://host/api/v3/repos/OWNER/NAME
github_api() {
  repository=${feed#github:}
  base=${repository#*@}
  printf '%s/repos/%s' "${base%/}" "${repository%%@*}"
}

github_asset() {
  [ -f "$scratch/$tag.json" ] || fetch "$(github_api)/releases/tags/$tag" "$scratch/$tag.json" 4 || return 0
  tr -d '\n' <"$scratch/$tag.json" | sed 's/"browser_download_url"/\
&/g' | sed -n 's/^"browser_download_url" *: *"\([^"]*\)".*/\1/p' | grep "/$1\$" | head -n 1
}

# URL or path, target file, bound in MB. Follows redirects by hand: https stays https, plain http stays on this host.
fetch() {
  case $1 in
    '') return 1 ;;
    /*)
      # a link could lead to what only root may read
      [ -f "$1" ] && [ ! -L "$1" ] && (bound "$3" && cp "$1" "$2")
      return
      ;;
    https://*) ;;
    *) is_loopback "$1" || die 2 "expected https, got $1" ;;
  esac
  if have curl; then
    get=get_by_curl
  elif have wget; then
    get=get_by_wget
  else
    die 3 "curl or wget is needed, but neither was found"
  fi
  address=$1
  hops=0
  while [ "$hops" -lt 10 ]; do
    hops=$((hops + 1))
    case $address in
      https://*) ;;
      http://*)
        case $1 in https://*) die 4 "$1 was redirected to plain http" ;; esac
        is_loopback "$address" || die 4 "$1 was redirected to plain http on another host"
        ;;
      *) die 4 "$1 was redirected to something that is not a web address" ;;
    esac
    next=$($get "$address" "$2" "$3") || return 1
    case $next in
      '') return 0 ;;
      *://*) address=$next ;;
      /*)
        rest=${address#*://}
        address=${address%%://*}://${rest%%/*}$next
        ;;
      *) address=${address%/*}/$next ;;
    esac
  done
  return 1
}

# Limits every file that is written to this many MB: a shell counts in blocks of 512 bytes; bash, unless in POSIX mode, in 1024.
bound() {
  ulimit -f $(($1 * 2048)) 2>/dev/null || :
}

# Both print the address that the server redirects to, if any. Neither reads the user's settings, which could make it write files:
# `curl -q`, and an empty file as WGETRC, because GNU's wget refuses /dev/null there.
get_by_curl() {
  bound "$3"
  exec curl -q -fsS --proto '=http,https' --tlsv1.2 --connect-timeout 20 --max-time 3600 --speed-limit 1000 \
    --speed-time 30 --retry 2 -o "$2" -w '%{redirect_url}' "$1"
}

get_by_wget() {
  if (bound "$3" && exec env WGETRC="$scratch/wgetrc" wget -S --max-redirect=0 -T 30 -O "$2" "$1" 2>"$scratch/wget"); then return 0; fi
  tr -d '\r' <"$scratch/wget" | sed -n 's/^ *[Ll]ocation: *\([^ ]*\).*/\1/p' | tail -n 1 | grep .
}

# GitHub answers /releases/latest with a redirect to the tag; asking this way costs no API quota.
latest_by_redirect() {
  if have curl; then
    curl -q -fsSI --proto =https --tlsv1.2 --connect-timeout 20 "$1"
  else
    WGETRC="$scratch/wgetrc" wget -S --spider --max-redirect=0 -T 30 "$1" 2>&1
  fi | tr -d '\r' | sed -n 's|^ *[Ll]ocation: *https://.*/releases/tag/\(v[0-9A-Za-z.-]*\)$|\1|p' | head -n 1
}

sha256() {
  if have sha256sum; then
    sha256sum "$1" | cut -d ' ' -f 1
  elif have shasum; then
    shasum -a 256 "$1" | cut -d ' ' -f 1
  elif have openssl; then
    openssl dgst -sha256 -r "$1" | cut -d ' ' -f 1
  else
    die 3 "sha256sum, shasum or openssl is needed, but none was found"
  fi
}

is_tag() {
  number='(0|[1-9][0-9]{0,8})' part='(0|[1-9][0-9]{0,8}|[0-9]{0,8}[A-Za-z][0-9A-Za-z]{0,15})'
  case $1 in *-deploy | *-holder) return 1 ;; esac
  printf '%s' "$1" | LC_ALL=C grep -Eq "^v$number\\.$number\\.$number(-$part(\\.$part){0,2})?\$" &&
    [ "$(printf '%s' "$1" | wc -l)" -eq 0 ]
}

have() {
  command -v "$1" >/dev/null 2>&1
}

say() {
  [ -n "$quiet" ] || printf '%s\n' "$1" >&2
}

# exit code, message, hint
die() {
  printf 'error: %s\n' "$2" >&2
  [ -z "${3-}" ] || printf 'hint: %s\n' "$3" >&2
  exit "$1"
}

main "$@"
exit
}
