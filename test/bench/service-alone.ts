// What the bench runs as Baton, stop-first: the same service behind the first code of a release. A holder never loads the service,
// and a successor loads it when its gate is open, so what clients wait for is what they would wait for.

import { BUILD } from '../../agent/service/build.ts'
import { beginAs } from '../fixtures/first-code.ts'

void beginAs({
  kind: 'bundle',
  healthPath: '/healthz',
  database: `${BUILD.service}.db`,
  executable: process.execPath,
  serve: async () => {
    const { serve } = await import('./serve.ts')
    await serve(process.argv.slice(2), 'stop-first')
  },
})
