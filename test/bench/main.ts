// `npm run bench [-- handover|update|overhead|container …] [--json] [--long] [--only id,id]`
import { parseArgs } from 'node:util'
import { run } from './handover.ts'
import { baton } from './baton.ts'
import { setUp } from './setup.ts'
const { values } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: 'boolean' },
    long: { type: 'boolean', default: false },
    only: { type: 'string', default: '' },
  },
})
const say = (line: string) => process.stderr.write(line + '\n')
const tools = await setUp(say)
const result = await run({
  tools,
  long: values.long,
  only: values.only.split(',').filter(Boolean),
  more: async () => [await baton()],
  say,
})
console.log(JSON.stringify(result, null, 1))
