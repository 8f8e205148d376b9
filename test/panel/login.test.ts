// The panel behind a real nginx that uses `Authorization` itself (`auth_basic`): a switch clicked through, and what a person is told where the
// service does not know of the proxy.

import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { userInfo } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import * as assert from '../assert.ts'
import { freePort } from '../fixtures/install.ts'
import { scriptRelease } from '../fixtures/releases.ts'
import { conforms } from '../lab/openapi.ts'
import { temporary } from '../lab/temporary.ts'
import { suite } from '../suite.ts'
import { type Browser, comesTrue, launch, NO_BROWSER, openPage, signIn } from './browser.ts'
import { installService, TOKEN } from './service.ts'

const NGINX = '/usr/sbin/nginx'
const skip = existsSync(NGINX) ? NO_BROWSER : `needs nginx at ${NGINX} (Debian: apt-get install nginx-light)`
const [USER, LOGIN] = ['anna', 'of the proxy']
const BASIC = `Basic ${Buffer.from(`${USER}:${LOGIN}`).toString('base64')}`

const test = suite('panel, behind a login', { timeoutMs: 120_000, skip })
let browser: Browser
test.before(async () => void (browser = await launch()))
test.after(async () => await browser.close())

test('where the setting says so the password comes in a header of its own: the API takes it, and an update is clicked through', async () => {
  const releases = [await scriptRelease('v1.0.0'), await scriptRelease('v1.1.0')]
  await using service = await installService({ releases, passwordHeader: 'x-baton-authorization' })
  await using proxy = await nginxBefore(service.url)
  const asked = async (headers: Record<string, string>) => {
    const response = await fetch(`${proxy.url}/admin/update/status`, { headers: { authorization: BASIC, ...headers } })
    const { status } = response
    conforms({
      method: 'GET',
      path: '/admin/update/status',
      status,
      headers: response.headers,
      body: await response.text(),
    })
    return status
  }
  assert.is(await asked({ 'x-baton-authorization': `Bearer ${TOKEN}` }), 200)
  assert.is(await asked({ 'x-baton-authorization': 'Bearer another' }), 401)
  assert.is(await asked({}), 401)
  assert.is((await service.ask('GET', '/status')).status, 200, '`Authorization` counts as before')

  await using watched = await openPage(browser, { httpCredentials: { username: USER, password: LOGIN } })
  const { page } = watched
  await signIn(page, proxy.url, TOKEN)
  await comesTrue(page, "document.querySelector('#update').textContent === 'Update to v1.1.0'")
  await page.click('#update')
  await page.click('#yes')
  await comesTrue(page, "document.querySelector('#outcomeTitle').textContent === 'Updated to v1.1.0'", 60_000)
  assert.equal(watched.wrong, [])
})

test('where it does not, a person is told that it is the proxy, and which setting helps; the password is not called wrong', async () => {
  await using service = await installService({ releases: [await scriptRelease('v1.0.0')] })
  await using proxy = await nginxBefore(service.url)
  const refused = await fetch(`${proxy.url}/admin/update/status`, {
    headers: { authorization: BASIC, 'x-baton-authorization': `Bearer ${TOKEN}` },
  })
  assert.is(refused.status, 401)
  assert.match(((await refused.json()) as { hint: string }).hint, /set `dashboard\.passwordHeader`/)
  await using watched = await openPage(browser, { httpCredentials: { username: USER, password: LOGIN } })
  const { page } = watched
  await page.goto(`${proxy.url}/web/settings.html`)
  await page.fill('#token', TOKEN)
  await page.click('#enter')
  await comesTrue(page, "/dashboard\\.passwordHeader/.test(document.querySelector('main').innerText)")
  assert.not.match(await page.innerText('main'), /Wrong password|No response/)
})

/** A real nginx with `auth_basic` in front of this address. */
async function nginxBefore(target: string): Promise<AsyncDisposable & { url: string }> {
  const folder = await temporary('nginx')
  const port = await freePort()
  const at = (name: string) => join(folder.path, name)
  await writeFile(at('users'), `${USER}:{PLAIN}${LOGIN}\n`, { mode: 0o644 })
  await writeFile(
    at('nginx.conf'),
    `user ${userInfo().username}; daemon off; pid ${at('pid')}; error_log ${at('error.log')}; worker_processes 1;
    events {}
    http {
      access_log off;
      ${['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((name) => `${name}_temp_path ${at(name)};`).join(' ')}
      server {
        listen 127.0.0.1:${port};
        auth_basic "closed";
        auth_basic_user_file ${at('users')};
        location / { proxy_pass ${target}; }
      }
    }`,
  )
  const child: ChildProcess = spawn(NGINX, ['-p', folder.path, '-c', at('nginx.conf')], { stdio: 'ignore' })
  const ended = new Promise((resolve) => child.once('exit', resolve))
  const url = `http://127.0.0.1:${port}`
  const dispose = async () => {
    child.kill('SIGTERM')
    await ended
    await folder[Symbol.asyncDispose]()
  }
  for (let tries = 0; (await fetch(url).catch(() => null)) === null; tries++) {
    if (tries === 100 || child.exitCode !== null) {
      await dispose()
      throw new Error('nginx does not start')
    }
    await sleep(50)
  }
  return { url, [Symbol.asyncDispose]: dispose }
}

test.run()
