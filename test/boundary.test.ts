// Root's end of a command, against a process of the service that has been taken over. It says whatever it likes.
// Must hold: what it says is bounded and never breaks the command; it ends when the command does.

import { chmod, chown, mkdir, mkdtemp, readdir, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { BatonError } from '../agent/words/errors.ts'
import { sandboxOf, sliceOf } from '../deploy/host/boundary/confine.ts'
import { type Front, isNotStarted, openFront } from '../deploy/host/boundary/front.ts'
import { remnantsOf } from '../deploy/host/boundary/drop.ts'
import { endOf } from '../deploy/host/commands/deeds.ts'
import { temporaryFolder } from '../deploy/lib/trusted.ts'
import { verifyFeed } from '../deploy/trust/verify.ts'
import { equal, is, match, ok, rejects, withCode } from './assert.ts'
import { suite } from './suite.ts'
import { eventually } from './lab/systemd.ts'
import { temporary } from './lab/temporary.ts'

const isRoot = process.getuid?.() === 0 && process.platform === 'linux'
const NOBODY = { uid: 65534, gid: 65534 }
const test = suite('root boundary', { timeoutMs: 30_000 })

test('the sandbox of a unit is taken as it stands, with the changes of the operator: paths that are not there keep nobody from starting', () => {
  const text = `[Unit]
ProtectHome=no
[Service]
ExecStart=/opt/x serve
# ProtectSystem=no
ProtectSystem=strict
ReadWritePaths=/opt/x -/srv/y
StateDirectory=x
RemoveIPC=yes
SystemCallFilter=@system-service \\
  @mount
SystemCallFilter=
BindPaths=%S/x
NetworkNamespacePath=/run/netns/x
AmbientCapabilities=CAP_NET_BIND_SERVICE
CapabilityBoundingSet=CAP_NET_BIND_SERVICE
Environment="A=b c"
User=root
[Install]
PrivateTmp=yes
`
  equal(sandboxOf(text), [
    'ProtectSystem=strict',
    'ReadWritePaths=-/opt/x -/srv/y',
    'SystemCallFilter=@system-service    @mount',
    'SystemCallFilter=',
    'NetworkNamespacePath=/run/netns/x',
    'Environment="A=b c"',
  ])
})

test("a service's slice is below no other's", () => {
  is(sliceOf('my-app'), String.raw`baton-my\x2dapp.slice`)
})

test('groups are what root had, unless systemd has set them; ids and capabilities of root never pass', () => {
  const status = (groups: string, uid = '999') =>
    `Uid:\t999\t999\t${uid}\t999\nGid:\t9\t9\t9\t9\nGroups:\t${groups}\nNoNewPrivs:\t1\nCapPrm:\t0\nCapEff:\t0\nCapAmb:\t0\n`
  is(remnantsOf(status('9'), false), null)
  is(remnantsOf(status('9 27'), false), 'Groups 27')
  is(remnantsOf(status('9 27'), true), null)
  match(remnantsOf(status('9', '0'), true) ?? '', 'Uid')
})

test('only a worker that systemd could not start is started again without the drop-ins', () => {
  equal([null, 0, 1, 137, 199, 200, 226, 243, 244].filter(isNotStarted), [200, 226, 243])
})

test('an end that is no JSON is no end', () => {
  const error = new BatonError('refused', 'no', { members: { outcome: 'failed', operation: '{"id": ' } })
  equal(endOf(error), { outcome: 'failed', from: null, to: null, operationId: null, operation: null })
})

if (isRoot) {
  test('root makes no temporary folder where another user can change the path: an error says so, and nothing is made', async () => {
    await using kept = await temporary('boundary')
    const folder = kept.path
    const before = process.env['TMPDIR']
    try {
      const root = join(folder, 'root.json')
      await writeFile(root, JSON.stringify({ signed: { version: 1 } }))
      const others = join(folder, 'others')
      await mkdir(others)
      await chown(others, NOBODY.uid, NOBODY.gid)
      await symlink(others, join(folder, 'link'))
      for (const place of [others, join(folder, 'link')]) {
        process.env['TMPDIR'] = place
        const error = await rejects(verifyFeed(folder, root, { os: 'linux', arch: 'x64' }, {}), withCode('refused'))
        match(error.message, 'a folder for temporary files must be in a place that only root can change, but ')
      }
      equal(await readdir(others), [])
      process.env['TMPDIR'] = folder
      await using made = await temporaryFolder('baton-')
      is((await stat(made.path)).mode & 0o777, 0o700)
    } finally {
      if (before === undefined) delete process.env['TMPDIR']
      else process.env['TMPDIR'] = before
    }
  })

  test('an error of whatever shape is an error, with an exit code of its own', async () => {
    for (const error of ['"no"', 'true', '[1]', '{}', '{"code":"toString","message":[1],"hint":{},"members":"x"}']) {
      await using world = await openOn(`answer 2 '"error":${error}'`)
      const told = (await rejects(world.front.side.unlock())) as BatonError
      equal([error, told.code, told.hint], [error, 'unexpected', null])
      match(told.message, /without an error message/)
    }
    await using world = await openOn(
      `answer 2 '"error":{"code":"refused","message":"no","members":{"a":{},"from":"v1.0.0"}}'`,
    )
    const told = (await rejects(world.front.side.unlock())) as BatonError
    equal([told.code, told.message, told.members], ['refused', 'no', { from: 'v1.0.0' }])
  })

  test('what it says without end is left out, and what it asks for without end is refused', async () => {
    const flood = (line: string, n: number) =>
      `i=0; while [ $i -lt ${n} ]; do i=$((i+1)); printf '%s\\n' '${line}'; done`
    await using world = await openOn(`
${flood('{"tell":"note","with":"again"}', 3000)}
${flood('{"tell":"stage","with":"check"}', 3000)}
${flood('{"tell":"bytes","with":[1,2]}', 3000)}
${flood('{"tell":"bytes","with":[2,2]}', 3000)}
${flood('{"ask":"state","id":1}', 500)}
answer 2 '"value":null'`)
    await world.front.side.unlock()
    const { notes, stages, bytes, states } = world.said
    is(notes.length, 201)
    is(notes.at(-1), 'further notes are omitted')
    ok(stages <= 100 && bytes <= 400 && states <= 200, JSON.stringify([stages, bytes, states]))
  })

  test('one that asks for what is not there and reads no answer is given up', async () => {
    await using world = await openOn(`yes '{"ask":"nothing of that name","id":1}'`)
    const told = (await rejects(world.front.side.unlock())) as BatonError
    match(told.message, 'this command’s helper process exited')
    is(world.said.states, 0)
  })

  test('what it has started in its group goes with it', async () => {
    await using world = await openOn(`sleep 5433 >/dev/null 2>&1 & answer 2 "\\"value\\":$!"`)
    const pid = Number(await world.front.side.unlock())
    const isThere = () => {
      try {
        return process.kill(pid, 0)
      } catch {
        return false
      }
    }
    ok(isThere())
    await world.front.close()
    await eventually('its end', async () => !isThere())
  })

  test('one that stands still is ended at the deadline of the command', async () => {
    await using world = await openOn('kill -STOP $$', 1500)
    const told = (await rejects(world.front.side.unlock())) as BatonError
    match(told.message, 'the command did not finish within')
  })
}

interface World extends AsyncDisposable {
  front: Front
  said: { notes: string[]; stages: number; bytes: number; states: number }
}

/** A process of nobody's that says hello, waits for a question, and then does this. */
async function openOn(then: string, deadlineMs = 20_000): Promise<World> {
  const folder = await mkdtemp(join(tmpdir(), 'baton-boundary-'))
  const script = join(folder, 'worker')
  const text = `answer() { printf '{"to":%s,%s}\\n' "$1" "$2"; }\nread hello\nanswer 1 '"value":null'\nread question\n${then}\nread end\n`
  await writeFile(script, text)
  await chmod(folder, 0o755)
  const said = { notes: [] as string[], stages: 0, bytes: 0, states: 0 }
  const supervisor = { state: async () => void said.states++, start: async () => {}, stop: async () => {} }
  const front = await openFront({
    program: ['/bin/sh', script],
    identity: NOBODY,
    environment: { PATH: '/usr/bin:/bin' },
    sandbox: null,
    feed: '',
    outside: {
      stage: () => void said.stages++,
      bytes: () => void said.bytes++,
      note: (line) => void said.notes.push(line),
    },
    supervisor: supervisor as never,
    deadlineMs,
  })
  return {
    front,
    said,
    async [Symbol.asyncDispose]() {
      await front.close()
      await rm(folder, { recursive: true })
    },
  }
}

test.run()
