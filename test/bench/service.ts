// What the bench runs as Baton: two releases of it serve side by side for a while. As in any release, what answers `--version` or copies
// the database loads nothing of the service.

import { doAllOrders } from '../fixtures/all-orders.ts'
import { BUILD } from '../../agent/service/build.ts'

const argv = process.argv.slice(2)
if (argv[0] === '--version') {
  process.stdout.write(`${BUILD.service} ${BUILD.tag}\n`)
  void doAllOrders()
} else void import('./serve.ts').then(({ serve }) => serve(argv, 'start-first'))
