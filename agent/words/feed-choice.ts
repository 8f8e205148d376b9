// Which releases an install looks for, and where: as its operator has configured it, else as its receipt says. Pure.

export const CHANNELS = ['stable', 'beta'] as const
/** `beta`: prereleases such as `v1.2.0-beta.1` too */
export type ReleaseChannel = (typeof CHANNELS)[number]

/** As in `config.json`. `feed`: the first one says what is a release; the bytes may come from each. */
export interface FeedChoice {
  feed: string | readonly string[]
  channel?: ReleaseChannel | undefined
  /** before the address of a download from GitHub: `https://mirror.example/` */
  downloadPrefix?: string | undefined
}

export const SOURCES_MAX = 8

/** The first source, by which people know the feed. */
export function feedName({ feed }: FeedChoice): string {
  return typeof feed === 'string' ? feed : (feed[0] ?? '')
}
