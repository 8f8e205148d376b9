// What the commands write to a terminal of what others have written: applications, containers, feeds, names of files.

import { formatDeployEvent } from '../deploy/container/report.ts'
import { BatonError } from '../agent/words.ts'
import { printable, printError, printJson, printLine } from '../deploy/lib/printer.ts'
import { createProgress } from '../deploy/lib/progress.ts'
import { equal, not, ok } from './assert.ts'
import { suite } from './suite.ts'

const test = suite('printer')

/** sets a title and a colour, clears the screen, goes back over the line, and turns the order of letters around */
const HOSTILE = 'a\u001B]0;title\u0007b\u001B[31mc\u001B[2Jd\u009B1Ae\rf\u202Eg\u2028h\u0000i\u007F'
// oxlint-disable-next-line no-control-regex -- they are what must not come out
const STEERS = /[\u0000-\u0009\u000B-\u001F\u007F-\u009F\u202A-\u202E\u2028]/

function written(write: (to: { write: (text: string) => boolean }) => void): string {
  let text = ''
  write({ write: (more) => ((text += more), true) })
  return text
}

test('nothing that others have written steers a terminal, and what is readable stays', () => {
  equal(printable(HOSTILE), 'abcde f g h i ')
  equal(printable('  12  größer 漢字 🚀\n  | as it is'), '  12  größer 漢字 🚀\n  | as it is')
  const [line = ''] = formatDeployEvent({ event: 'log', line: HOSTILE })
  equal(
    written((to) => printLine(line, to)),
    '  | abcde f g h i \n',
  )
  const drawn = written((stream) => {
    const progress = createProgress({ stream, environment: {}, now: () => 0 })
    progress.note(HOSTILE)
    progress.stage(HOSTILE, HOSTILE)
    progress.detail(HOSTILE)
    progress.end('failed', `${HOSTILE}\nupdated: all is well`)
  })
  not(STEERS.test(drawn))
  equal(drawn.split('\n').length, 3)
})

test('no line of an error can be taken for a line of the command, and a hint comes last', () => {
  const error = { message: `copying ${HOSTILE}\nupdated: app runs v9.9.9\n`, hint: 'look at it' }
  equal(
    written((to) => printError(error, to)),
    'error: copying abcde f g h i \n  updated: app runs v9.9.9\nhint: look at it\n',
  )
})

test('an error without a hint of its own says what its code asks for, and names no page that a host does not have', () => {
  equal(
    written((to) => printError(new BatonError('check_failed', 'no answer'), to)),
    'error: no answer\nhint: check that this host can reach the feed’s address: `doctor` tests it and reports what fails\ncode: check_failed (`help check_failed` explains it)\n',
  )
})

test('what was typed wrong, and what the message says whole, have no code to look up', () => {
  for (const code of ['invalid_tag', 'refused'] as const) {
    const error = new BatonError(code, 'no', { hint: 'do this' })
    equal(
      written((to) => printError(error, to)),
      'error: no\nhint: do this\n',
    )
  }
})

test('a program reads from JSON what was there, and a terminal that shows it is not steered', () => {
  const line = written((to) => printJson({ said: HOSTILE }, to))
  ok(line.endsWith('}\n') && !STEERS.test(line))
  equal(JSON.parse(line), { said: HOSTILE })
})

test.run()
