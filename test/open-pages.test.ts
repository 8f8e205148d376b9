// @long @deadlineMs 900000
// A page that was open before an update of a real application: one of Vite's, whose server answers every path by the page, and one of
// Next.js, standalone. What may be sent, and what may not, is in old-pages.test.ts.

import { type Bundler, openOver } from './apps/open-page.ts'
import { equal, is, ok } from './assert.ts'
import { packedKit } from './pack/main.ts'
import { NO_BROWSER } from './panel/browser.ts'
import { suite } from './suite.ts'

const test = suite('open pages', { timeoutMs: 600_000, skip: NO_BROWSER })

const APPS: Record<Bundler, string> = { vite: 'dist/assets', next: '.next/static' }

for (const [app, assets] of Object.entries(APPS) as [Bundler, string][]) {
  test(`${app}: a page of v1.0.0 gets its chunks after the update to v1.1.0, and nothing else`, async () => {
    const seen = await openOver(app, await packedKit(), (line) => void process.stderr.write(`  ${line}\n`))
    equal(seen.assets, [assets], '`init` finds the folder')
    ok(seen.changed > 0, 'the releases have different files')
    equal(seen.missing, [])
    is(seen.says, 'more of v1.0.0')
    equal([seen.wrong, seen.others], [[], []])
  })
}

test.run()
