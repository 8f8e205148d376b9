// The branches of the repository on the release server: as GitHub's Git data API makes them, and its contents API and raw host read them.
// Only what a publisher and hosts ask for: text files in one folder. What is not as there is refused.

import { createHash } from 'node:crypto'

export interface Answer {
  status: number
  /** an object is JSON */
  body: object | string
}

interface Commit {
  tree: string
  parents: string[]
}

export interface Branches {
  /** POST and PATCH below `/git/` */
  write(method: string, path: string, body: Record<string, unknown>): Answer
  /** `GET /git/ref/heads/NAME`, as `ref/heads/NAME` */
  ref(path: string): Answer
  /** `GET /contents/PATH?ref=REF`; `raw`: the file itself, and not JSON */
  contents(path: string, ref: string, raw: boolean, url: string): Answer
  /** a file by the raw host; null: 404 */
  raw(ref: string, path: string): string | null
  /** the commits of a branch, newest first */
  history(name: string): string[]
}

const NOT_FOUND: Answer = { status: 404, body: { message: 'Not Found' } }

export function makeBranches(): Branches {
  const [trees, commits] = [new Map<string, Map<string, string>>(), new Map<string, Commit>()]
  const [heads, blobs] = [new Map<string, string>(), new Map<string, string>()]
  const refuse = (message: string): Answer => ({ status: 422, body: { message } })
  const filesOf = (ref: string) => trees.get(commits.get(heads.get(ref) ?? '')?.tree ?? '') ?? null
  const history = (name: string): string[] => {
    const all: string[] = []
    for (let at = heads.get(`refs/heads/${name}`); at !== undefined; at = commits.get(at)?.parents[0]) all.push(at)
    return all
  }
  const makeTree = (entries: unknown): Answer => {
    const files = new Map<string, string>()
    for (const { path, mode, type, sha, content = blobs.get(String(sha)) } of entries as Record<string, unknown>[]) {
      if (mode !== '100644' || type !== 'blob' || typeof content !== 'string') return refuse('tree.mode is invalid')
      files.set(String(path), content)
      blobs.set(shaOf(content), content)
    }
    const sha = shaOf(JSON.stringify([...files]))
    trees.set(sha, files)
    return { status: 201, body: { sha } }
  }
  const makeCommit = ({ tree, parents, message }: Record<string, unknown>): Answer => {
    const isKnown = trees.has(String(tree)) && (parents as string[]).every((one) => commits.has(one))
    if (!isKnown || typeof message !== 'string' || message === '') return refuse('Tree SHA does not exist')
    const sha = shaOf(JSON.stringify([tree, parents, message, commits.size]))
    commits.set(sha, { tree: String(tree), parents: parents as string[] })
    return { status: 201, body: { sha } }
  }
  return {
    history,
    write(method, path, body) {
      const { sha = '', force = false } = body as { sha?: string; force?: boolean }
      if (method === 'POST' && path === 'trees') return makeTree(body['tree'])
      if (method === 'POST' && path === 'commits') return makeCommit(body)
      if (method === 'POST' && path === 'refs') {
        const ref = String(body['ref'])
        if (heads.has(ref)) return refuse('Reference already exists')
        if (!ref.startsWith('refs/heads/') || !commits.has(sha)) return refuse('Object does not exist')
        heads.set(ref, sha)
        return { status: 201, body: { ref, object: { type: 'commit', sha } } }
      }
      const head = heads.get(path)
      if (method !== 'PATCH' || head === undefined) return refuse('Reference does not exist')
      if (!force && commits.get(sha)?.parents.includes(head) !== true) return refuse('Update is not a fast forward')
      heads.set(path, sha)
      return { status: 200, body: { ref: path, object: { type: 'commit', sha } } }
    },
    ref(path) {
      const sha = heads.get(`refs/${path.slice('ref/'.length)}`)
      return sha === undefined ? NOT_FOUND : { status: 200, body: { object: { type: 'commit', sha } } }
    },
    contents(path, ref, raw, url) {
      const files = filesOf(ref)
      if (files === null) return { status: 404, body: { message: `No commit found for the ref ${ref}` } }
      const entry = (name: string) => {
        const sha = shaOf(files.get(name) ?? '')
        return { name, path: name, type: 'file', sha, url: `${url}${name}?ref=${ref}` }
      }
      if (path === '') return { status: 200, body: [...files.keys()].toSorted().map(entry) }
      const text = files.get(path)
      if (text === undefined) return NOT_FOUND
      const content = Buffer.from(text).toString('base64')
      return { status: 200, body: raw ? text : { ...entry(path), encoding: 'base64', content } }
    },
    raw: (ref, path) => filesOf(ref)?.get(path) ?? null,
  }
}

function shaOf(text: string): string {
  return createHash('sha1').update(text).digest('hex')
}
