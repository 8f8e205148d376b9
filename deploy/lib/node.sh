# Runs a TypeScript script with this repository's own Node, if it has one. Sourced by deploy-*.sh; POSIX sh.
# Must hold: if the script cannot run, one line says what to do.

# run_here FILE ARGUMENT…   runs FILE of the folder in `here`
run_here() {
  script=$1
  shift
  root=$here/..
  if [ ! -d "$root/node_modules/zx" ]; then
    echo "error: expected the packages of this checkout in $root/node_modules; run: (cd '$root' && npm ci --ignore-scripts)" >&2
    exit 3
  fi
  PATH="$root/node_modules/.bin:$PATH"
  if ! command -v node >/dev/null 2>&1; then
    echo "error: expected Node 24 or newer, got none; run: (cd '$root' && npm ci --ignore-scripts), which brings one" >&2
    exit 3
  fi
  . "$here/lib/node-starts.sh"
  # the scripts are TypeScript, which Node runs as it is from 22.18 and 23.6 on
  if ! node -e 'process.exit(process.features.typescript ? 0 : 1)' 2>/dev/null; then
    echo "error: expected Node 24 or newer, got $(node --version); run: (cd '$root' && npm ci --ignore-scripts), which brings one" >&2
    exit 3
  fi
  exec node --disable-warning=ExperimentalWarning "$here/$script" "$@"
}
