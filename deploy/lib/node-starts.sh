# Ends with 3 if the Node that the packages bring cannot start here, and says what to install. POSIX sh.
# Node links with libatomic since Node 25, and a small system lacks it: the loader's own words name the file, not the package.

if ! error=$(node --version 2>&1 >/dev/null); then
  echo "error: expected the Node in node_modules to start, got: $error" >&2
  case $error in
    *libatomic*) echo "hint: as root, run \`apt-get install libatomic1\` (Debian, Ubuntu) or \`dnf install libatomic\` (Fedora, RHEL)" >&2 ;;
  esac
  exit 3
fi
