// The schema of `<service>.db`, as steps. Pure, so that the build can put its number into `release.json`.
// Must hold: predecessor and successor have the file open at once, and either may be the older release. So a step only adds
// (tables, columns with a default, indexes); it never renames, drops or retypes what an older release still reads.
// A release that really must break older readers raises `minimumReader`. An older release then refuses the file and says why.
//
// This service is at step 2. The later steps are examples, one for each kind of change that authors ask about.
// docs/author/migrations.md shows them, and test/history.test.ts rehearses each of them.

/** One step of the schema. Step n (from 1) brings `PRAGMA user_version` from n-1 to n. */
export interface SchemaStep {
  /** the lowest schema number that a release must know to use the file after this step */
  minimumReader: number
  sql: string
}

export const HISTORY: readonly SchemaStep[] = [
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
    // An index, on the table that grows to millions of rows.
    minimumReader: 1, // a release at schema 1 neither reads nor writes the index
    sql: 'create index quota_by_token on quota (token_id, id);',
  },
  {
    // A column more.
    minimumReader: 1, // an older release leaves it out
    sql: 'alter table logs add column written_by text;',
  },
  {
    // `used` gets the name `units`: expand, by a copy. From here on both are written.
    minimumReader: 1, // an older release writes `used` alone, so this one reads `used` where `units` is null
    sql: `
      alter table quota add column units integer;
      update quota set units = used;`,
  },
  {
    // `completions` is split in two: expand, by a copy. From here on both tables are written.
    minimumReader: 1, // an older release writes `completions.content` alone, so releases go on reading that
    sql: `
      create table contents (key text primary key, content text not null) strict;
      insert into contents (key, content) select key, content from completions;`,
  },
  {
    // Contract, one release too early: the release before still reads what this step drops. So there is no way back.
    minimumReader: 6,
    sql: `
      update quota set units = used where units is not used;
      insert or replace into contents (key, content) select key, content from completions;
      alter table quota drop column used;
      alter table completions drop column content;`,
  },
]

/** The steps of the present release. */
export const SCHEMA: readonly SchemaStep[] = HISTORY.slice(0, 2)
