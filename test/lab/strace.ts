// Reads the output of `strace -f`. Finds each call by which a process that is still root touched something that another user can
// change (needs `-y`), and which process opened a file. Pure.

export interface Places {
  /** folders that the other user can write to */
  inside: readonly string[]
  /** files that the other user can write to */
  files: readonly string[]
}

/** calls on a folder itself, if root owns its parent: an installer makes it, gives it away, and removes it when it is empty */
const OF_THE_FOLDER = new Set([
  'mkdir',
  'mkdirat',
  'chown',
  'lchown',
  'fchownat',
  'chmod',
  'fchmodat',
  'rmdir',
  'unlinkat',
])
/** calls on a name in a folder that root owns: a user who can write to the file cannot influence them */
const OF_THE_NAME = new Set(['rename', 'renameat', 'renameat2', 'unlink', 'unlinkat'])

export function faultsIn(trace: string, { inside, files }: Places): string[] {
  /** pids of processes that have given up root, and of their children */
  const dropped = new Set<string>()
  // a child's first lines may come before the line with the call that made it
  const parents = parentsIn(trace)
  const unfinished = new Map<string, string>()
  const faults: string[] = []
  for (const line of trace.split('\n')) {
    const [, pid = '', rest = ''] = /^(\d+) +(.*)$/.exec(line) ?? []
    const call = whole(pid, rest, unfinished)
    if (call === null) continue
    const name = /^(\w+)\(/.exec(call)?.[1] ?? ''
    if (dropped.has(parents.get(pid) ?? '')) dropped.add(pid)
    if (/^set(?:uid|resuid|reuid)\((?!0)\d+.* = 0$/.test(call)) dropped.add(pid)
    if (dropped.has(pid) || /= -1 /.test(call)) continue
    if (/^(?:kill|tkill|tgkill)/.test(name)) {
      const target = /\((\d+)/.exec(call)?.[1] ?? ''
      if (target !== pid && !parents.has(target)) faults.push(call)
    } else if (touches(name, call, inside, files)) faults.push(call)
  }
  return faults
}

function touches(name: string, call: string, inside: readonly string[], files: readonly string[]): boolean {
  const paths = [...call.matchAll(/"([^"]*)"|<(\/[^>]*)>/g)].map(([, text, fd]) => text ?? fd ?? '')
  const first = name === 'execve' ? paths.slice(0, 1) : paths
  return first.some((path) => {
    if (files.includes(path)) return !OF_THE_NAME.has(name)
    const folder = inside.find((top) => path === top || path.startsWith(`${top}/`))
    return folder !== undefined && !(path === folder && OF_THE_FOLDER.has(name))
  })
}

export interface Process {
  /** arguments of the last program that it executed; empty if it executed none */
  argv: string
  /** what any of its threads opened: path and flags, in order */
  opened: string[]
}

/** Every process and what it opened of `paths`. Needs a trace of `openat`, `execve` and the calls that make processes and threads. */
export function openersIn(trace: string, paths: readonly string[]): Process[] {
  const parents = parentsIn(trace)
  const calls: { pid: string; call: string }[] = []
  const unfinished = new Map<string, string>()
  for (const line of trace.split('\n')) {
    const [, pid = '', rest = ''] = /^(\d+) +(.*)$/.exec(line) ?? []
    const call = whole(pid, rest, unfinished)
    if (call !== null) calls.push({ pid, call })
  }
  const threads = new Set<string>()
  for (const { call } of calls) {
    const [, thread] = /^clone3?\(.*CLONE_THREAD.* = (\d+)/.exec(call) ?? []
    if (thread !== undefined) threads.add(thread)
  }
  const processOf = (pid: string): string => {
    const parent = parents.get(pid)
    if (parent === undefined) return '' // a thread of the process that strace was attached to
    return threads.has(pid) ? processOf(parent) : pid
  }
  const processes = new Map<string, Process>()
  for (const { pid, call } of calls) {
    const id = processOf(pid)
    const process = processes.get(id) ?? { argv: '', opened: [] }
    processes.set(id, process)
    const [, argv] = /^execve\("[^"]*", \[(.*?)\], .* = 0$/.exec(call) ?? []
    if (argv !== undefined) process.argv = argv
    const [, path = '', flags = ''] = /^openat\([^,]*, "([^"]*)", ([^,)]*).* = \d+/.exec(call) ?? []
    if (paths.includes(path)) process.opened.push(`${path} ${flags}`)
  }
  return [...processes.values()]
}

/** Joins the two lines of a call that another one interrupted; null for the first of them. */
function whole(pid: string, rest: string, unfinished: Map<string, string>): string | null {
  const begun = /^(.*) <unfinished \.\.\.>$/.exec(rest)?.[1]
  if (begun !== undefined) {
    unfinished.set(pid, begun)
    return null
  }
  const resumed = /^<\.\.\. \w+ resumed>(.*)$/.exec(rest)?.[1]
  if (resumed === undefined) return /^\w+\(/.test(rest) ? rest : null
  const start = unfinished.get(pid) ?? ''
  unfinished.delete(pid)
  return `${start}${resumed}`
}

function parentsIn(trace: string): Map<string, string> {
  const births = trace.matchAll(/^(\d+) +(?:<\.\.\. )?(?:clone3?|v?fork)(?:\(| resumed).* = (\d+)/gm)
  return new Map(Array.from(births, ([, parent = '', child = '']) => [child, parent]))
}
