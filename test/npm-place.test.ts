// What `deploy-npm.sh` believes of the places that it is told, and of what npm says of signatures. No network, no package.

import { chown, mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { assertCell } from '../deploy/npm/sandbox.ts'
import { type NpmTools, signatures } from '../deploy/npm/steps.ts'
import { openWorkshop, workshopOf } from '../deploy/npm/workshop.ts'
import { is, match, rejects } from './assert.ts'
import { suite } from './suite.ts'
import { temporary } from './lab/temporary.ts'

const test = suite('npm place')
const isRoot = process.geteuid?.() === 0

test('root makes no release in a folder that somebody else can write: what lies there would be installed', async () => {
  if (!isRoot) return
  await using it = await temporary('npm-place')
  const feed = join(it.path, 'feed')
  await mkdir(feed)
  await openWorkshop(workshopOf(it.path, 'shop', { isRoot, feed }))
  await chown(feed, 1234, 1234)
  const { message } = await rejects(openWorkshop(workshopOf(it.path, 'shop', { isRoot, feed })))
  match(message, `got ${feed}: user id 1234 can change`)
})

test('a wrong signature is found among however many, and what npm says otherwise is told', async () => {
  await using it = await temporary('npm-place')
  const shop = workshopOf(it.path, 'shop', { isRoot: false, feed: null })
  await openWorkshop(shop)
  if (
    !(await assertCell(join(shop.folder, 'empty'), null).then(
      () => true,
      () => false,
    ))
  )
    return
  const npm = join(it.path, 'npm/bin/npm-cli.js')
  await mkdir(join(it.path, 'npm/bin'), { recursive: true })
  const tools = { node: process.execPath, npm, sees: [process.execPath], calm: false } as unknown as NpmTools
  const said = async (lines: string[], exit: number) => {
    await writeFile(npm, `console.log(${JSON.stringify(lines.join('\n'))}); process.exitCode = ${exit}`)
    return await signatures(shop, tools, it.path).catch((cause: Error) => `refused: ${cause.message}`)
  }
  const names = Array.from({ length: 12 }, (_, at) => `p${at}@1.0.0 (https://registry.example/)`)
  const [audited, end] = ['audited 12 packages in 1s', 'Someone might have tampered with these packages']
  for (const what of ['registry signatures', 'attestations'])
    match(
      await said([audited, '', `12 packages have invalid ${what}:`, '', ...names, '', end], 1),
      /^refused: npm found an invalid signature or attestation: .*12 packages have invalid/s,
    )
  const some = '12 packages have missing registry signatures but the registry is providing signing keys:'
  is(await said([audited, '', some, '', ...names], 1), `signatures were not checked: ${some}`)
  const all = '12 packages have verified registry signatures'
  is(await said([audited, '', all], 0), all)
  is(await said(['npm error code ENOKEYS', 'npm error no keys'], 1), 'signatures were not checked: no keys')
})

test.run()
