// The schema of `<service>.db`, as steps. Pure, so that the build can put its number into `release.json`.
// Must hold: predecessor and successor have the file open at once, and either may be the older release. So a step only adds
// (tables, columns with a default, indexes); it never renames, drops or retypes what an older release still reads.
// A release that really must break older readers raises `minimumReader`. An older release then refuses the file and says why.

/** One step of the schema. Step n (from 1) brings `PRAGMA user_version` from n-1 to n. */
export interface SchemaStep {
  /** the lowest schema number that a release must know to use the file after this step */
  minimumReader: number
  sql: string
}

export const SCHEMA: readonly SchemaStep[] = [
  {
    minimumReader: 1,
    sql: `
      create table tokens (
        id text primary key, name text not null, secret_sha256 blob not null, created_at text not null
      ) strict;
      create table logs (
        id integer primary key autoincrement, level text not null, message text not null, created_at text not null
      ) strict;
      create table quota (
        id integer primary key autoincrement, token_id text not null, used integer not null, created_at text not null
      ) strict;
      create table completions (
        key text primary key, content text not null, created_at text not null, expires_at text not null
      ) strict;
      create index completions_by_expiry on completions (expires_at);`,
  },
  {
    minimumReader: 1, // a release at schema 1 neither reads nor writes the index
    sql: 'create index quota_by_token on quota (token_id, id);',
  },
]
