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
    means: 'where releases are found: a GitHub repository, or a folder by URL or path',
    page: 'operator/update.md#where-releases-come-from',
  },
  {
    word: 'managed install',
    means: 'what `install.sh` has installed; only that can replace its own executable',
    page: 'operator/install.md',
  },
  {
    word: 'state directory',
    means: '`{stateDirectory}`, the folder with the data that every update keeps; only `uninstall --purge` deletes it',
    page: 'author/application.md#what-it-is-given',
  },
  { word: 'update', means: 'to move a service to another release', page: 'operator/update.md' },
  {
    word: 'roll back',
    means: 'to go back to the backup, or to an older release, because a person asks for it',
    page: 'operator/update.md',
  },
  { word: 'backup', means: 'the executable that the last update replaced; never a copy of data, which is a snapshot' },
  {
    word: 'operation',
    means: 'an update or a rollback, from its request to its outcome',
    page: 'reference/errors.md#outcomes',
  },
  {
    word: 'switch',
    means: 'the last step of an operation: the process of one release takes the place of another’s',
    page: 'author/order.md',
  },
  {
    word: 'order',
    means: 'how one process follows the other in an update: stop-first or start-first',
    page: 'author/order.md',
  },
  {
    word: 'stop-first',
    means: 'the old process has ended before the new one begins; clients wait',
    page: 'author/order.md',
  },
  { word: 'start-first', means: 'both live for a while; nobody waits', page: 'author/order.md' },
  {
    word: 'pause',
    means: 'how long clients wait in a stop-first switch; `pauseUntil` stops automatic updates instead',
  },
  {
    word: 'probation',
    means: 'how long a new release must prove itself: 30 seconds by default',
    page: 'operator/update.md',
  },
  {
    word: 'reverted',
    means: 'the new release failed in an update or its probation, and the old one serves again, by itself',
    page: 'operator/troubleshooting.md',
  },
  {
    word: 'trial on a copy',
    means:
      'before anything changes, the new release is started on a copy of the data, then the present one on what that left; `untried`: there was none',
    page: 'author/migrations.md',
  },
  {
    word: 'reversible, irreversible',
    means: 'a trial’s verdict: the present release can, or cannot, work on what the new one leaves',
    page: 'author/migrations.md',
  },
  {
    word: 'snapshot',
    means: 'a copy of the database: made by an update before it changes anything, or by `<service> snapshot FILE`',
    page: 'operator/install.md#one-host',
  },
  {
    word: 'automatic updates',
    means: 'updates that nobody asks for, within the operator’s limits',
    page: 'operator/automatic.md',
  },
  {
    word: 'carried',
    means: 'of a WebSocket or a stream: it goes on in the next process, as its author has registered it',
    page: 'author/websockets.md',
  },
  {
    word: 'holder',
    means: 'a small process or container that keeps the ports while the application is replaced',
    page: 'operator/container.md',
  },
  { word: 'signed', means: 'of a feed: hosts believe only what its keys vouch for', page: 'author/signing.md' },
  {
    word: 'yank',
    means: 'of a publisher: to take a release back, for every host; `bad` is one that has failed on this host alone',
    page: 'author/signing.md#a-release-is-bad',
  },
]

export function glossaryPage(): string {
  const rows = GLOSSARY.map(({ word, means, page }) => {
    const linked = page === undefined ? `**${word}**` : `[**${word}**](../${page})`
    return `- ${linked}: ${means}`
  })
  return `# Glossary

The words of these pages, the commands and the panel. \`npm run pages\` writes this page from \`deploy/make/glossary.ts\`.

${rows.join('\n')}
`
}
