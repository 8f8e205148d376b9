// What the bench runs as Baton: two releases of it serve side by side for a while.

import { BUILD } from '../../agent/service/build.ts'
import { serve } from './serve.ts'

const argv = process.argv.slice(2)
if (argv[0] === '--version') process.stdout.write(`${BUILD.service} ${BUILD.tag}\n`)
else void serve(argv, 'start-first')
