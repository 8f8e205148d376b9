// Every state that the page can be in, each reached on the scripted service: what axe, the narrow screen and the pictures go through.

import type { ScheduleReport, Status, VersionReport } from '../../agent/words/state.ts'
import { comesTrue, type Page } from './browser.ts'
import { irreversibleFault } from '../../agent/words/rehearsal.ts'
import { forPerson, type Wait } from '../../agent/words/waits.ts'
import { idle, instance, NO_WAY_BACK, operation, rehearsed, report, secondsAgo, type Stub, TOKEN } from './stub.ts'

export interface State {
  name: string
  reach: (page: Page, stub: Stub) => Promise<void>
}

const COMMAND =
  'docker run --rm -v /var/run/docker.sock:/var/run/docker.sock registry.example.org/team/beacon:deploy deploy --container label=baton.service=beacon --release latest'

const RUNNING = operation('update', { stage: 'restart', startedAt: secondsAgo(20) })
const FAILED = {
  tag: 'v1.2.0',
  sha256: 'ab'.repeat(32),
  why: 'v1.2.0 failed during probation: it exited with code 1',
  at: secondsAgo(7200),
}
/** what a release that dies at its start is answered with */
export const LONG_REASON =
  'v1.1.0 did not serve within 60 s: it exited with code 1 after printing: Error: `STRIPE_KEY` is not set · at configure (/opt/beacon/app/configuration.js:41:9) · at main (/opt/beacon/app/server.js:12:3) · Node.js v26.10.0'
const HISTORY = (['reverted', 'cancelled', 'failed', 'rolled_back', 'updated'] as const).map((outcome, at) =>
  operation('update', {
    kind: outcome === 'rolled_back' ? 'rollback' : 'update',
    outcome,
    startedAt: secondsAgo(7200 * (at + 1) + 40),
    finishedAt: secondsAgo(7200 * (at + 1)),
    error:
      outcome === 'failed'
        ? {
            code: 'download_failed',
            message: 'requesting https://releases.example.org/v1.1.0/beacon-linux-x64.zst: expected 200, got 503',
          }
        : outcome === 'reverted'
          ? { code: 'restart_failed', message: LONG_REASON }
          : null,
    handover: outcome === 'updated' ? { moved: 128, carried: 12, returned: 0, ended: 0, cut: 0, switchMs: 214 } : null,
  }),
)

/** Signs in to a service of which this is known. */
async function enter(
  page: Page,
  stub: Stub,
  status: Partial<Status> = {},
  some: Partial<VersionReport> = {},
): Promise<void> {
  stub.world.status = { ...idle(), history: HISTORY, ...status }
  stub.world.report = report(some)
  await page.goto(`${stub.url}/web/settings.html`)
  await page.fill('#token', TOKEN)
  await page.click('#enter')
  await page.waitForSelector('#card:not([hidden])')
  await page.waitForSelector('#check[aria-disabled=false], #busy:not([hidden])')
}

const busy = (some: Parameters<typeof operation>[1], more: Partial<Status> = {}): Partial<Status> => ({
  state: 'in_flight',
  operation: operation('update', { startedAt: secondsAgo(14), ...some }),
  ...more,
})

const ended = (some: Parameters<typeof operation>[1], more: Partial<Status> = {}): Partial<Status> => ({
  operation: operation('update', { startedAt: secondsAgo(90), finishedAt: secondsAgo(20), stage: 'restart', ...some }),
  ...more,
})

const goes = (...because: Wait[]): Wait => ({
  code: 'goes',
  says: 'v1.1.0 will be installed automatically',
  tag: 'v1.1.0',
  because,
})
const PAUSED: Wait = { code: 'paused', says: 'updates are paused' }
const NO_RULES = { says: '', hours: [], minAgeMs: 0, skip: [], allow: [] }

export const schedule = (some: Partial<ScheduleReport> = {}): ScheduleReport => ({
  mode: 'minor',
  most: 'minor',
  policy: {
    says: 'minor, mon to fri 02:00-05:00 Europe/Berlin, 3 days after a release, without v1.1.7',
    hours: [{ days: ['mon', 'tue', 'wed', 'thu', 'fri'], from: '02:00', to: '05:00', zone: 'Europe/Berlin' }],
    minAgeMs: 259_200_000,
    skip: ['v1.1.7'],
    allow: ['unsigned'],
  },
  next: '2026-11-24T01:17:00Z',
  now: goes(),
  askedAt: secondsAgo(300),
  pausedUntil: null,
  waits: [],
  since: [],
  ...some,
})

const opened = async (page: Page) => {
  await page.click('#notesTitle')
  await page.waitForSelector('#notesText h3')
}

export const STATES: readonly State[] = [
  {
    name: 'token',
    async reach(page, stub) {
      await page.goto(`${stub.url}/web/settings.html`)
      await page.waitForSelector('#gate:not([hidden])')
    },
  },
  {
    name: 'token-wrong',
    async reach(page, stub) {
      await page.goto(`${stub.url}/web/settings.html`)
      await page.fill('#token', 'wrong')
      await page.click('#enter')
      await page.waitForSelector('#gateProblem:not(:empty)')
    },
  },
  {
    name: 'offer',
    async reach(page, stub) {
      await enter(page, stub, { backup: 'v0.9.0' })
      await opened(page)
    },
  },
  {
    name: 'offer-several',
    async reach(page, stub) {
      const between = ['v1.2.1', 'v1.2.0'].map((tag) => ({
        tag,
        notes: `## Fixes\n\n- one more of the things that ${tag} is about\n`,
        publishedAt: secondsAgo(86_400 * 20),
        url: `https://example.org/releases/${tag}`,
      }))
      const latest = { tag: 'v1.3.0', notes: MARKDOWN, publishedAt: secondsAgo(86_400), sizeBytes: 30_412_288 }
      const release = { ...latest, url: 'https://example.org/releases/v1.3.0', schema: 5 }
      await enter(page, stub, { backup: 'v0.9.0' }, { latest: 'v1.3.0', release, between })
      await opened(page)
    },
  },
  {
    name: 'offer-before-a-barrier',
    reach: async (page, stub) => await enter(page, stub, {}, { beyond: { tag: 'v2.0.0', from: 'v1.1.0' } }),
  },
  { name: 'return', reach: async (page, stub) => await enter(page, stub, { backup: 'v1.1.0' }) },
  {
    name: 'current',
    reach: async (page, stub) => await enter(page, stub, {}, { latest: 'v1.0.0', updateAvailable: false, skipped: [] }),
  },
  {
    name: 'failed-here',
    async reach(page, stub) {
      await enter(page, stub, { backup: 'v0.9.0' }, { latest: 'v1.0.0', updateAvailable: false, skipped: [FAILED] })
    },
  },
  {
    name: 'failed-here-offer',
    reach: async (page, stub) => await enter(page, stub, {}, { skipped: [FAILED] }),
  },
  { name: 'automatic', reach: async (page, stub) => await enter(page, stub, { schedule: schedule() }) },
  {
    name: 'automatic-waits',
    async reach(page, stub) {
      const reason = 'v1.0.0 does not start with the data that v1.2.0 leaves behind: exit code 1'
      const why = forPerson('irreversible', 'v1.2.0', `its migration cannot be undone: ${reason}`, { why: reason })
      const beyond = forPerson('beyond', 'v2.0.0', 'the policy allows updates only up to minor', { mode: 'minor' })
      const waits = [why, beyond]
      const did = operation('update', { outcome: 'updated', by: 'schedule', finishedAt: secondsAgo(40_000) })
      await enter(page, stub, { schedule: schedule({ now: why, waits }), history: [did, ...HISTORY] })
    },
  },
  {
    name: 'automatic-rules',
    async reach(page, stub) {
      stub.world.limits = { mode: 'minor' }
      stub.world.policy = {
        mode: 'patch',
        hours: '02:00-05:00',
        days: ['mon', 'tue', 'wed', 'thu', 'fri'],
        minAge: '3d',
      }
      await enter(page, stub, { schedule: schedule() })
      await page.click('#rulesTitle')
      await page.waitForSelector('#rulesForm:not([hidden])')
    },
  },
  {
    name: 'automatic-paused',
    async reach(page, stub) {
      await enter(page, stub, { schedule: schedule({ now: goes(PAUSED) }) })
      const before = await page.textContent('#pause')
      await page.click('#pause')
      await comesTrue(page, `document.querySelector('#pause').textContent !== ${JSON.stringify(before)}`)
    },
  },
  {
    name: 'automatic-paused-by-the-operator',
    async reach(page, stub) {
      const pausedUntil = '2026-12-27T00:00:00.000Z'
      stub.world.limits = { pauseUntil: pausedUntil }
      await enter(page, stub, { schedule: schedule({ now: goes(PAUSED), pausedUntil, next: pausedUntil }) })
      await page.click('#pause')
      await page.waitForSelector('#notice:not([hidden])')
    },
  },
  {
    name: 'automatic-turned-off',
    async reach(page, stub) {
      await enter(page, stub, { schedule: schedule() })
      await page.uncheck('#auto')
      await page.waitForSelector('#auto:not(:checked)')
      await page.waitForSelector('#pause', { state: 'hidden' })
    },
  },
  {
    name: 'skipped',
    async reach(page, stub) {
      await enter(page, stub, { schedule: schedule() })
      await page.click('#skip')
      await page.waitForSelector('#update', { state: 'hidden' })
    },
  },
  {
    name: 'restart-missing',
    reach: async (page, stub) => await enter(page, stub, {}, { installed: 'v1.1.0' }),
  },
  {
    name: 'behind-a-login',
    async reach(page, stub) {
      await enter(page, stub, {})
      stub.world.login = 401
      await page.waitForSelector('#silence:not([hidden])')
    },
  },
  {
    name: 'automatic-step',
    async reach(page, stub) {
      const says = "v1.1.0 is being rolled out in steps, and it is not this host's turn yet"
      await enter(page, stub, { schedule: schedule({ now: goes({ code: 'staged', says, tag: 'v1.1.0' }) }) })
    },
  },
  {
    name: 'automatic-broke',
    async reach(page, stub) {
      const error = { code: 'restart_failed', message: 'v1.1.0 exited with code 3 in its probation' } as const
      const did = operation('update', { outcome: 'reverted', by: 'schedule', finishedAt: secondsAgo(40_000), error })
      const feed = 'https://releases.example.org/beacon/verified/timestamp.json: no answer within 30 s'
      const rules =
        '`update/policy.json`: expected hours such as `02:00-05:00` in `hours`, got "25:00-99:99", so nothing is installed automatically'
      const report = 'it failed with exit code 67, saying "sendmail: fatal: no such user"; the report was dropped'
      const lost = 'it loses rows on a full disk'
      const waits: Wait[] = [
        {
          code: 'yanked',
          says: `v1.0.0, the running release, was yanked; run \`rollback\` to go back. Reason: ${lost}`,
          tag: 'v1.0.0',
          why: lost,
        },
        forPerson('failed', 'v1.1.0', `it failed here: ${error.message}`, { why: error.message }),
        {
          code: 'failures',
          says: 'the last 3 automatic attempts failed, most recently with v1.1.0: see the history for the reasons',
          count: 3,
          tag: 'v1.1.0',
        },
        { code: 'feed', says: `the feed: ${feed}`, why: feed },
        { code: 'rules', says: rules, why: rules },
        { code: 'report', says: `\`update.onOutcome\`: ${report}`, why: report },
      ]
      const now: Wait = { code: 'current', says: 'there is no newer release' }
      await enter(page, stub, { schedule: schedule({ now, waits }), history: [did, ...HISTORY] })
    },
  },
  {
    name: 'automatic-off',
    async reach(page, stub) {
      const now: Wait = { code: 'off', says: 'automatic updates are off' }
      await enter(page, stub, { schedule: schedule({ mode: 'off', most: 'all', policy: NO_RULES, next: null, now }) })
    },
  },
  {
    name: 'automatic-not-signed',
    async reach(page, stub) {
      const now: Wait = { code: 'current', says: 'there is no newer release' }
      await enter(page, stub, { schedule: schedule({ policy: NO_RULES, now }) })
    },
  },
  {
    name: 'automatic-notify',
    async reach(page, stub) {
      const now: Wait = { code: 'available', says: 'v1.1.0 is available', tag: 'v1.1.0' }
      const rules = { mode: 'notify', most: 'notify', policy: NO_RULES } as const
      await enter(page, stub, { schedule: schedule({ ...rules, now, waits: [now] }) })
    },
  },
  {
    name: 'signed',
    async reach(page, stub) {
      const metadata = [
        { role: 'timestamp', version: 7, expiresAt: new Date(Date.now() + 86_400_000 * 20).toISOString() },
      ]
      await enter(page, stub, {}, {
        trust: { signed: true, metadata, yanked: [], warning: null },
      } as Partial<VersionReport>)
    },
  },
  {
    name: 'not-signed',
    async reach(page, stub) {
      await enter(
        page,
        stub,
        {},
        {
          trust: { signed: false, metadata: [], yanked: [], warning: null },
        },
      )
    },
  },
  {
    name: 'mismatch',
    reach: async (page, stub) => await enter(page, stub, {}, { installed: 'v1.1.0' }),
  },
  {
    name: 'field-error',
    async reach(page, stub) {
      await enter(page, stub)
      await page.click('#other summary')
      await page.fill('#tag', '1.2')
      await page.press('#tag', 'Enter')
      await page.waitForSelector('#tagProblem:not(:empty)')
    },
  },
  {
    name: 'confirm',
    async reach(page, stub) {
      await enter(page, stub)
      await page.click('#update')
    },
  },
  {
    name: 'confirm-particular',
    async reach(page, stub) {
      const skipped = [{ ...FAILED, tag: 'v0.8.0' }]
      const more = {
        trust: { signed: false, metadata: [], yanked: [], warning: null },
        database: { name: 'beacon.db', schema: 4 },
      }
      await enter(page, stub, { backup: 'v0.9.0' }, { skipped, ...more })
      await page.click('#other summary')
      await page.fill('#tag', 'v0.8.0')
      await page.press('#tag', 'Enter')
      await page.waitForSelector('#confirmPoints li')
    },
  },
  { name: 'check', reach: async (page, stub) => await enter(page, stub, busy({ stage: 'check', to: null })) },
  {
    name: 'download',
    async reach(page, stub) {
      await enter(page, stub, busy({ stage: 'download', progress: { bytes: 12_000_000, totalBytes: 30_412_288 } }))
      const { operation: running } = stub.world.status
      if (running !== null) {
        for (let bytes = 13e6; bytes < 16e6; bytes += 1e6) {
          running.progress = { bytes, totalBytes: 30_412_288 }
          await comesTrue(page, `progress.value === ${bytes}`)
        }
      }
    },
  },
  {
    name: 'cancelling',
    async reach(page, stub) {
      await page.route('**/admin/update/cancel', () => {}) // not answered yet
      await enter(page, stub, busy({ stage: 'verify' }))
      await page.click('#cancel')
      await page.waitForSelector('#cancel[aria-disabled=true]')
    },
  },
  {
    name: 'work',
    async reach(page, stub) {
      const why = '"export 7", under way for 40s'
      await enter(
        page,
        stub,
        busy({ stage: 'verify', waits: [{ code: 'work', says: `waiting for ${why}`, count: 1, why }] }),
      )
      await page.waitForSelector('#proceed:visible')
    },
  },
  {
    name: 'cancelled',
    reach: async (page, stub) => await enter(page, stub, ended({ outcome: 'cancelled', stage: 'download' })),
  },
  {
    name: 'probation',
    async reach(page, stub) {
      const probation = { tag: 'v1.1.0', since: secondsAgo(11), until: secondsAgo(-19) }
      const fresh = instance('v1.1.0', secondsAgo(12))
      await enter(page, stub, busy({ ...RUNNING, outcome: null }, { probation, instance: fresh, backup: 'v1.0.0' }))
      await page.waitForSelector('#progress[value]')
    },
  },
  {
    name: 'updated',
    async reach(page, stub) {
      const handover = { moved: 128, carried: 12, returned: 0, ended: 0, cut: 0, switchMs: 214 }
      const more = { instance: instance('v1.1.0', secondsAgo(60)), backup: 'v1.0.0' }
      const now = { installed: 'v1.1.0', running: 'v1.1.0', updateAvailable: false }
      await enter(page, stub, ended({ outcome: 'updated', handover }, more), now)
    },
  },
  {
    name: 'updated-alone',
    async reach(page, stub) {
      const handover = { moved: 128, carried: 12, returned: 0, ended: 0, cut: 0, switchMs: 914, pauseMs: 108 }
      const more = { instance: instance('v1.1.0', secondsAgo(60)), backup: 'v1.0.0' }
      const now = { installed: 'v1.1.0', running: 'v1.1.0', updateAvailable: false }
      await enter(page, stub, ended({ outcome: 'updated', handover }, more), now)
    },
  },
  {
    name: 'reverted',
    async reach(page, stub) {
      const handover = { moved: 40, carried: 6, returned: 38, ended: 2, cut: 0, switchMs: 214 }
      const error = { code: 'probation_failed', message: FAILED.why } as const
      const none = { latest: 'v1.0.0', updateAvailable: false, skipped: [FAILED] }
      await enter(page, stub, ended({ to: 'v1.2.0', outcome: 'reverted', error, handover }), none)
    },
  },
  {
    name: 'failed',
    async reach(page, stub) {
      const error = {
        code: 'verify_failed',
        message: `sha256 of \`beacon-linux-x64.zst\`: expected ${'ab12'.repeat(16)}, got ${'cd34'.repeat(16)}`,
      } as const
      await enter(page, stub, ended({ outcome: 'failed', stage: 'verify', error }))
    },
  },
  {
    name: 'no-way-back',
    async reach(page, stub) {
      const { code, message } = irreversibleFault('v1.1.0', NO_WAY_BACK)
      const error = { code, message }
      await enter(page, stub, ended({ outcome: 'failed', stage: 'verify', error, trial: NO_WAY_BACK }))
      await page.check('#allowIrreversible')
    },
  },
  {
    name: 'not-tried',
    async reach(page, stub) {
      const rehearsal = rehearsed({
        verdict: 'untried',
        code: 'old_units',
        reason:
          '/var/lib/beacon-trial does not exist or does not belong to the service, so the units are from a release that predates trials on a copy',
        hint: 'run `install.sh` from a newer release once as root to rewrite the units',
        rows: null,
      })
      const more = { instance: instance('v1.1.0', secondsAgo(60)), backup: 'v1.0.0' }
      const now = { installed: 'v1.1.0', running: 'v1.1.0', updateAvailable: false }
      await enter(page, stub, ended({ outcome: 'updated', trial: rehearsal }, more), now)
    },
  },
  {
    name: 'feed-down',
    async reach(page, stub) {
      const message =
        'requesting https://releases.example.org/beacon/releases.json: connect ECONNREFUSED 203.0.113.7:443'
      const none = { latest: null, updateAvailable: false, release: null }
      await enter(page, stub, { backup: 'v0.9.0' }, { ...none, problem: { code: 'check_failed', message } })
    },
  },
  {
    name: 'kept-back',
    async reach(page, stub) {
      const message =
        'v1.2.0 cannot be used: sha256 of release.json: expected 0c2e9ab41f77… (as signed), got e3b0c44298fc…'
      await enter(page, stub, { backup: 'v0.9.0' }, { problem: { code: 'release_unusable', message } })
    },
  },
  {
    name: 'silence',
    async reach(page, stub) {
      await enter(page, stub, busy({ stage: 'download', progress: { bytes: 12_000_000, totalBytes: 30_412_288 } }))
      stub.world.down = true
      await page.waitForSelector('#silence:not([hidden])')
    },
  },
  {
    name: 'unmanaged',
    async reach(page, stub) {
      await unmanaged(page, stub, {
        detail: '/home/odd/downloads/beacon-linux-x64 was installed by hand, not by `install.sh`',
        reason: 'by_hand',
        route: 'download the new release asset, replace the executable and restart the process',
      })
    },
  },
  {
    name: 'container',
    async reach(page, stub) {
      await unmanaged(page, stub, {
        detail: 'this is a container: update its image instead',
        reason: 'container',
        route: "on the container's host, pull the new image and recreate the container",
        command: COMMAND,
        running: 'v1.0.0',
        latest: 'v1.1.0',
      })
    },
  },
]

async function unmanaged(page: Page, stub: Stub, members: NonNullable<Stub['world']['unmanaged']>): Promise<void> {
  stub.world.unmanaged = members
  await page.goto(`${stub.url}/web/settings.html`)
  await page.fill('#token', TOKEN)
  await page.click('#enter')
  await page.waitForSelector('#unmanaged:not([hidden])')
}

export const MARKDOWN = `# What is new

Faster completions, and a *quota history* that **no longer forgets**. See [the guide](https://example.org/guide), or
\`beacon --help\`.

### Fixes

- Detached completions are cached for a week (was: a day)
  - also those of other tokens
- The quota history keeps its rows in \`quota_history\`, and snake_case_names stay whole
- [x] \`GET /healthz\` answers while the database is being snapshotted

| setting | was | is |
|---|---|---|
| \`cacheDays\` | 1 | 7 |

\`\`\`
beacon upgrade v1.3.0
\`\`\`

> Rolling back to v1.0.x keeps every row.
`
