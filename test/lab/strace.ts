// Reads what `strace -f -y` has written, and tells each call by which a process that is still root touched what somebody else can
// change. Pure.

export interface Places {
  /** folders that the other user can write in */
  inside: readonly string[]
  /** files that it can write */
  files: readonly string[]
}

/** of a folder itself, in a parent that is root's: an installer makes it, gives it away, and takes it away when it is empty */
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
/** of a name in a folder that is root's: who can write the file has no say in it */
const OF_THE_NAME = new Set(['rename', 'renameat', 'renameat2', 'unlink', 'unlinkat'])

export function faultsIn(trace: string, { inside, files }: Places): string[] {
  /** pids that have given root up; what they start has none to give up */
  const dropped = new Set<string>()
  // a child's first lines may stand before the line that tells of its birth
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

/** A call that another one interrupted stands in two lines. */
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
