// A branch of a repository on GitHub that holds a few text files and nothing else, through the Git data API: no clone, and no git here.
// Must hold: readers see all files of one commit. Only a later commit takes the place of another: whoever was first wins.

import { BatonError } from '../../agent/words.ts'
import type { GitHub } from '../lib/github.ts'

export interface Branch {
  /** its commit; null: there is no such branch */
  head(): Promise<string | null>
  /** null: there is no such branch */
  files(): Promise<BranchFile[] | null>
  /** Makes these the files of the branch: texts by name, and some of those that it has. */
  replace(texts: ReadonlyMap<string, string>, kept: readonly BranchFile[], message: string): Promise<void>
}

export interface BranchFile {
  name: string
  url: string
  /** of the blob */
  sha: string
}

/** `repository`: its address in the API. */
export function openBranch(repository: string, name: string, ask: GitHub['ask']): Branch {
  const ref = `refs/heads/${name}` // in full: a tag may have the same name
  const head = async (): Promise<string | null> => {
    const answer = await ask('GET', `${repository}/git/ref/heads/${name}`)
    return answer.ok ? ((await answer.json()) as { object: { sha: string } }).object.sha : null
  }
  const make = async (method: 'POST' | 'PATCH', path: string, body: object): Promise<{ sha: string }> => {
    const answer = await ask(method, `${repository}/git/${path}`, JSON.stringify(body))
    if (answer.ok) return (await answer.json()) as { sha: string }
    throw new BatonError('release_not_found', `there is no repository at ${repository}, or no right to write to it`)
  }
  return {
    head,
    async files() {
      const answer = await ask('GET', `${repository}/contents/?ref=${ref}`)
      return answer.ok ? ((await answer.json()) as BranchFile[]) : null
    },
    async replace(texts, kept, message) {
      const before = await head()
      const file = { mode: '100644', type: 'blob' }
      const fresh = [...texts].map(([path, content]) => ({ ...file, path, content }))
      const tree = await make('POST', 'trees', {
        tree: [...fresh, ...kept.map(({ name: path, sha }) => ({ ...file, path, sha }))],
      })
      const parents = before === null ? [] : [before]
      const commit = await make('POST', 'commits', { message, tree: tree.sha, parents })
      if (before === null) await make('POST', 'refs', { ref, sha: commit.sha })
      else await make('PATCH', `refs/heads/${name}`, { sha: commit.sha, force: false })
    },
  }
}
