// What this machine lacks for the tests that it skipped, a line each: how many tests, for lack of what, and how to have it.

/** Words of a reason, and how to have what they name on Debian. The first that is found counts. */
const WAYS: readonly [lack: RegExp, way: string][] = [
  [/\bapt-get install\b/, ''], // it says so itself
  [/\bLinux\b(?!.* and )/, 'run the tests on Linux'],
  [/\bsystemd\b/, '`apt-get install systemd dbus`, as root'],
  [/\bcgroup2?\b/, 'mount it: `.ci/run` says how a container is given it'],
  [
    /\b(root|loop device|network namespaces?)\b/,
    'run `.ci/run` as root, on a machine of its own or in a privileged container',
  ],
  [/\bnamespaces of a user\b/, 'outside of a container, or in a privileged one'],
  [/\bAnsible\b/, '`apt-get install ansible-core ansible-lint yamllint openssh-client openssh-server`'],
  [/\bshellcheck\b/, '`apt-get install shellcheck`'],
  [/\bstrace and sqlite3\b/, '`apt-get install strace sqlite3`'],
  [/\bcurl and wget\b/, '`apt-get install curl wget`'],
  [/\bbusybox\b/, '`apt-get install busybox-static`'],
  [/\bPython\b/, '`apt-get install python3`'],
  [/\bcc\b/, '`apt-get install musl-tools`, which brings a compiler'],
]
const OTHERWISE = '`.ci/run` prepares a bare Debian 12 for every test'

/** One line for each reason, that of most tests first. `reasons`: why each skipped test was skipped. */
export function lackLines(reasons: readonly string[]): string[] {
  const byReason = Map.groupBy(reasons, (reason) => reason)
  return [...byReason]
    .toSorted(([, a], [, b]) => b.length - a.length)
    .map(([reason, { length }]) => {
      const way = WAYS.find(([lack]) => lack.test(reason))?.[1] ?? OTHERWISE
      return `skipped ${length}: ${reason}${way === '' ? '' : `; to have it: ${way}`}`
    })
}
