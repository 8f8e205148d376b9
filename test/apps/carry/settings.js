// What each of these applications is told by the test. An installed one needs none of it.

const { PASSWORD, FEED, STATE, PORT } = process.env

export const port = Number(PORT)
/** the build's: another one in each release */
export const tag = __BATON_TAG__
export const settings = {
  service: 'beacon',
  tag,
  executable: process.argv[1],
  password: PASSWORD,
  feed: FEED,
  stateDirectory: STATE,
  healthPath: '/healthz',
  order: 'start-first', // no state but a database, and the tests are about two processes
  update: { probation: '800ms', drainTimeout: '10s', hangTimeout: '5s', readyTimeout: '20s' },
}

if (process.argv[2] === '--version') {
  process.stdout.write(`beacon ${tag}\n`)
  process.exit(0)
}
