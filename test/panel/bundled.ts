// An entry for the bundler: says what the panel is made of, from wherever it runs.

import { webAssets } from '../../agent/web/panel.ts'

process.stdout.write(JSON.stringify(webAssets()))
