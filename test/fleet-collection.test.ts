// @deadlineMs 900000
// The collection by itself: clean for the linters of Ansible, installed as its README says, and the README's own playbooks move
// hosts of which only the answers are there. No deploy-fleet.sh takes part.

import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, readFile, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { equal, is, match, ok } from './assert.ts'
import { linesOf, makeStubFleet, noAnsible, type StubFleet } from './lab/stub-fleet.ts'
import { suite } from './suite.ts'

const test = suite('fleet: collection', { skip: noAnsible, timeoutMs: 200_000 })

const PROJECT = join(import.meta.dirname, '..')
const COLLECTION = join(PROJECT, 'deploy/fleet')
const exec = promisify(execFile)

test('yamllint, ansible-lint and shellcheck have nothing to say', async () => {
  await using fleet = await makeStubFleet(1)
  const place = join(fleet.folder, 'ansible_collections', 'baton')
  await mkdir(place, { recursive: true })
  await symlink(COLLECTION, join(place, 'fleet'))
  const cwd = join(place, 'fleet')
  await said(exec('yamllint', ['--strict', '.'], { cwd }))
  const env = { ...process.env, ANSIBLE_COLLECTIONS_PATH: fleet.folder, PYTHONDONTWRITEBYTECODE: '1' }
  const files = ['playbooks/waves.yml', 'roles/release']
  const lint = await said(
    exec('ansible-lint', ['--offline', '--nocolor', '--profile', 'production', ...files], { cwd, env }),
  )
  match(lint, /0 failure\(s\), 0 warning\(s\) on \d+ files/)
  await said(exec('shellcheck', ['plugins/modules/release.sh'], { cwd }))
})

test('the playbooks of the README move hosts; what goes wrong on the canary stops the rest', async () => {
  const readme = await readFile(join(COLLECTION, 'README.md'), 'utf8')
  const [whole = '', role = ''] = Array.from(readme.matchAll(/```yaml\n([\s\S]*?)```/g), ([, text = '']) => text)
  const [settings = ''] = Array.from(readme.matchAll(/```ini\n([\s\S]*?)```/g), ([, text = '']) => text)
  const [install = ''] = Array.from(readme.matchAll(/```sh\n([\s\S]*?)```/g), ([, text = '']) => text.trim())
  match(install, /^ansible-galaxy collection install deploy\/fleet$/)
  await using fleet = await makeStubFleet(3)
  await said(exec('sh', ['-c', `${install} -p ${fleet.folder}/collections`], { cwd: PROJECT }))
  await writeFile(
    join(fleet.folder, 'ansible.cfg'),
    settings.replace('[defaults]', '[defaults]\ncollections_path = collections'),
  )

  const first = await play(fleet, whole.replaceAll(/fleet_soak: \d+/g, 'fleet_soak: 0'))
  is(first.code, 0, first.stdout)
  equal(await fleet.running(), ['v1.1.0', 'v1.1.0', 'v1.1.0'])
  const last = linesOf(await readFile(join(fleet.folder, 'fleet.jsonl'), 'utf8')).at(-1)
  ok(last?.event === 'result' && last.exit === 0)

  const second = role
    .replaceAll(/fleet_soak: \d+/g, 'fleet_soak: 0')
    .replace('hosts: web', 'hosts: all')
    .replace('v1.1.0', 'v1.2.0')
  await fleet.set('h1', 'ends', 'reverted')
  const stopped = await play(fleet, second)
  is(stopped.code, 2)
  match(stopped.stdout, 'h1 was reverted: it died in probation')
  equal(await fleet.done('h2'), ['upgrade v1.1.0'])
})

test.long(
  'the role in `serial`: a check says who would change, one bad batch takes all of them back, its variables are told',
  async () => {
    await using fleet = await makeStubFleet(4)
    await ownCollection(fleet, 'fleet.jsonl', 'default') // Ansible's own output has the counts
    const role = '{role: baton.fleet.release, fleet_release: v1.1.0, fleet_soak: 0, fleet_on_failure: fleet}'
    const book = `- hosts: all\n  gather_facts: false\n  serial: [1, 1, "100%"]\n  roles: [${role}]\n`

    await fleet.set('h2', 'running', 'v1.1.0')
    const checked = await play(fleet, book, '--check')
    is(checked.code, 0, checked.stdout)
    match(checked.stdout, /^h1 .* changed=1 /m)
    match(checked.stdout, /^h2 .* changed=0 /m)
    match(checked.stdout, /^h4 .* changed=1 /m)
    equal(await fleet.running(), ['v1.0.0', 'v1.1.0', 'v1.0.0', 'v1.0.0'])

    await useCallback(fleet, 'fleet.jsonl', 'baton.fleet.report')
    await fleet.set('h2', 'running', 'v1.0.0')
    await fleet.set('h4', 'ends', 'reverted')
    const { code, stdout } = await play(fleet, book)
    is(code, 2, stdout)
    equal(await fleet.running(), ['v1.0.0', 'v1.0.0', 'v1.0.0', 'v1.0.0'])
    for (const host of ['h1', 'h2', 'h3']) equal(await fleet.done(host), ['upgrade v1.1.0', 'rollback v1.0.0'], host)
    const last = linesOf(await readFile(join(fleet.folder, 'fleet.jsonl'), 'utf8')).at(-1)
    equal(last?.event === 'result' && last.hosts.map((row) => [row.host, row.wave, row.outcome]), [
      ['h1', 1, 'taken_back'],
      ['h2', 2, 'taken_back'],
      ['h3', 3, 'taken_back'],
      ['h4', 3, 'reverted'],
    ])

    await fleet.set('h4', 'ends', 'good')
    await fleet.set('h2', 'ends', 'failed')
    const tolerant = await play(
      fleet,
      book.replace('[1, 1, ', '[2, ').replace('fleet_soak', 'fleet_max_fail_percentage: 50, fleet_soak'),
    )
    equal([tolerant.code, await fleet.running()], [2, ['v1.1.0', 'v1.0.0', 'v1.1.0', 'v1.1.0']], tolerant.stdout)
    match(tolerant.stdout, /the run continued without h2: 1 of 4 hosts needs attention\nh2 .* failed /)

    const docs = async (...args: string[]) =>
      JSON.parse((await exec('ansible-doc', ['--json', ...args], { cwd: fleet.folder })).stdout) as Record<
        string,
        unknown
      >
    const options = JSON.stringify(await docs('-t', 'role', 'baton.fleet.release'))
    const defaults = await readFile(join(COLLECTION, 'roles/release/defaults/main.yml'), 'utf8')
    for (const [, name = ''] of defaults.matchAll(/^(fleet_\w+):/gm)) ok(options.includes(`"${name}"`), name)
    ok(JSON.stringify(await docs('baton.fleet.release')).includes('allow_downgrade'))
  },
)

test.long('a flag in text is no more than a flag', async () => {
  await using fleet = await makeStubFleet(2)
  await ownCollection(fleet, 'fleet.jsonl')
  const book = '- hosts: all\n  gather_facts: false\n  roles: [{role: baton.fleet.release, fleet_soak: 0}]\n'
  const moved = await play(fleet, book, '-e', 'fleet_release=latest', '-e', 'fleet_rollback=false')
  is(moved.code, 0, moved.stdout)
  equal(await fleet.running(), ['v1.1.0', 'v1.1.0'])
})

test.long('the name of a host in a later batch is not expanded', async () => {
  await using fleet = await makeStubFleet(2)
  await ownCollection(fleet, 'fleet.jsonl')
  const inventory = JSON.parse(await readFile(fleet.inventory, 'utf8')) as { all: { hosts: Record<string, unknown> } }
  const { h1, h2 } = inventory.all.hosts
  const made = join(fleet.folder, 'made')
  inventory.all.hosts = { h1, [`h{{ lookup('pipe','touch ${made}') }}`]: h2 }
  await writeFile(fleet.inventory, JSON.stringify(inventory))
  const role = '{role: baton.fleet.release, fleet_release: v1.1.0, fleet_soak: 0}'
  const book = `- hosts: all\n  gather_facts: false\n  serial: 1\n  roles: [${role}]\n`
  const { code, stdout } = await play(fleet, book)
  is(existsSync(made), false, 'the name was expanded')
  is(code, 2, stdout)
  match(stdout, 'expected host names without spaces')
  equal([await fleet.done('h1'), await fleet.done('h2')], [['upgrade v1.1.0'], []])
})

/** Links the collection beside the hosts, and names it and the report in their ansible.cfg. */
async function ownCollection(fleet: StubFleet, report: string, callback = 'baton.fleet.report'): Promise<void> {
  const place = join(fleet.folder, 'collections', 'ansible_collections', 'baton')
  await mkdir(place, { recursive: true })
  await symlink(COLLECTION, join(place, 'fleet'))
  await useCallback(fleet, report, callback)
}

async function useCallback(fleet: StubFleet, report: string, callback: string): Promise<void> {
  const settings = `[defaults]\ncollections_path = collections\nstdout_callback = ${callback}\n`
  await writeFile(join(fleet.folder, 'ansible.cfg'), `${settings}[baton_fleet]\nreport = ${report}\n`)
}

async function play(fleet: StubFleet, text: string, ...flags: string[]): Promise<{ code: number; stdout: string }> {
  await writeFile(join(fleet.folder, 'book.yml'), text)
  const ran = exec('ansible-playbook', ['-i', 'hosts.json', 'book.yml', ...flags], { cwd: fleet.folder })
  return await ran.then(
    ({ stdout }) => ({ code: 0, stdout }),
    (error: { code: number; stdout: string; stderr: string }) => ({
      code: error.code,
      stdout: error.stdout + error.stderr,
    }),
  )
}

/** What it has said; fails with that where it failed. */
async function said(running: Promise<{ stdout: string; stderr: string }>): Promise<string> {
  const { stdout, stderr } = await running.catch((error: Error & { stdout: string; stderr: string }) => {
    throw new Error(`${error.message}\n${error.stdout}\n${error.stderr}`)
  })
  return stdout + stderr
}

test.run()
