// The words that a user of Baton meets, and the page of them. Pure.
// Must hold: each is explained by words of every day or by another word of the table, and they are at most 25, so that they can be learnt.

export const WORDS_MAX = 25

interface Explained {
  word: string
  /** one sentence or two */
  means: string
  /** below docs/: where more is said */
  page?: string
}

export const GLOSSARY: readonly Explained[] = [
  { word: 'executable', means: 'the one file that runs the service: Node and the application' },
  {
    word: 'release',
    means: 'one published version of a service, named by its tag, such as `v1.2.0`',
    page: 'author/publishing.md',
  },
  {
    word: 'feed',
    means: 'where a service finds releases: a GitHub repository, or a folder given by URL or path',
    page: 'operator/update.md#where-releases-come-from',
  },
  {
    word: 'managed install',
    means: 'a service installed by `install.sh`; only such a service can replace its own executable',
    page: 'operator/install.md',
  },
  {
    word: 'state directory',
    means:
      '`{stateDirectory}`, the folder with the service’s data; updates keep it, and only `uninstall --purge` deletes it',
    page: 'author/application.md#what-it-is-given',
  },
  { word: 'update', means: 'to move a service to another release', page: 'operator/update.md' },
  {
    word: 'roll back',
    means: 'to go back to the backup, or to an older release, on request',
    page: 'operator/update.md',
  },
  { word: 'backup', means: 'the executable that was replaced last; a copy of the data is a snapshot' },
  {
    word: 'operation',
    means: 'an update or a rollback, from its request to its outcome',
    page: 'reference/errors.md#outcomes',
  },
  {
    word: 'switch',
    means: 'the last step of an operation: the new release’s process takes over from the old one’s',
    page: 'author/order.md',
  },
  {
    word: 'order',
    means: 'what happens first in a switch: stopping the old process, or starting the new one',
    page: 'author/order.md',
  },
  {
    word: 'stop-first',
    means: 'the old process stops before the new one starts; clients wait',
    page: 'author/order.md',
  },
  {
    word: 'start-first',
    means: 'the new process starts before the old one stops; no client waits',
    page: 'author/order.md',
  },
  {
    word: 'pause',
    means: 'how long clients wait in a stop-first switch (unrelated to `pauseUntil`)',
  },
  {
    word: 'health',
    means: 'whether a request to its `healthPath` gets a 2xx response',
    page: 'author/application.md#what-it-is-given',
  },
  {
    word: 'probation',
    means: 'the time in which a new release must prove itself: 30 seconds by default',
    page: 'operator/update.md',
  },
  {
    word: 'reverted',
    means: 'the new release failed during the switch or probation, and the old one was restored automatically',
    page: 'operator/troubleshooting.md',
  },
  {
    word: 'trial on a copy',
    means:
      'before anything changes, the new release is started on a copy of the data, then the current one on that same copy; `untried`: there was no trial',
    page: 'operator/data.md',
  },
  {
    word: 'reversible, irreversible',
    means: 'a trial’s result: whether the current release can work with the data that the new one leaves behind',
    page: 'operator/data.md',
  },
  {
    word: 'snapshot',
    means: 'a copy of the database, made by an update before it changes anything, or by `<service> snapshot FILE`',
    page: 'operator/install.md#one-host',
  },
  {
    word: 'automatic updates',
    means: 'updates that start on their own, within the operator’s limits',
    page: 'operator/automatic.md',
  },
  {
    word: 'carried',
    means: 'describes a WebSocket or a stream that continues in the next process because the author registered it',
    page: 'author/websockets.md',
  },
  {
    word: 'holder',
    means: 'a small process or container that keeps the ports while the application is replaced',
    page: 'operator/container.md',
  },
  {
    word: 'signed',
    means: 'describes a feed with keys: hosts accept only releases signed with them',
    page: 'author/signing.md',
  },
  {
    word: 'yank',
    means: 'to mark a release so that no host installs it (unlike `bad`: a release that failed on this host)',
    page: 'author/signing.md#a-release-is-bad',
  },
]

export function glossaryPage(): string {
  const rows = GLOSSARY.map(({ word, means, page }) => {
    const linked = page === undefined ? `**${word}**` : `[**${word}**](../${page})`
    const id = word.replace(/,.*/, '').replaceAll(' ', '-')
    return `- <a id="${id}"></a>${linked}: ${means}`
  })
  return `# Glossary

${rows.join('\n')}
`
}
