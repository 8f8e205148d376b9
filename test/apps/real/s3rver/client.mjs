// Clients of s3rver by fetch: each puts an object and gets it back, without a second try. Until stdin ends; then all objects are got once
// more, and one line of JSON is printed.
// lost: requests without their right answer. doubled: not counted, a key is there once. missing: acknowledged objects that are not there.

import { createHash, createHmac } from 'node:crypto'
import { tell, work } from './working.mjs'

const BUCKET = '/things'
const base = `http://127.0.0.1:${process.env.PORT}`
const acknowledged = []

await ask('PUT', BUCKET)
const lost = await work({ clients: 4, pauseMs: 80 }, async (client, number) => {
  const key = `${client}-${number}`
  await ask('PUT', `${BUCKET}/${key}`, key.repeat(1000))
  acknowledged.push(key)
  await assertThere(key)
})
let missing = 0
for (const key of acknowledged) await assertThere(key).catch(() => missing++)
tell({ done: acknowledged.length, lost, doubled: 0, missing })

async function assertThere(key) {
  if ((await ask('GET', `${BUCKET}/${key}`)) !== key.repeat(1000)) throw new Error(`${key}: got another object`)
}

/** Signed as version 2 of S3's signatures has it, with the key that s3rver is known by. */
async function ask(method, path, body = '') {
  const date = new Date().toUTCString()
  const md5 = body === '' ? '' : createHash('md5').update(body).digest('base64')
  const type = body === '' ? '' : 'text/plain'
  const text = `${method}\n${md5}\n${type}\n\nx-amz-date:${date}\n${path}`
  const signature = createHmac('sha1', 'S3RVER').update(text).digest('base64')
  const headers = { 'x-amz-date': date, authorization: `AWS S3RVER:${signature}` }
  if (body !== '') Object.assign(headers, { 'content-md5': md5, 'content-type': type })
  const response = await fetch(base + path, { method, headers, ...(body === '' ? {} : { body }) })
  const said = await response.text()
  if (!response.ok) throw new Error(`${response.status} of ${method} ${path}: ${said.slice(0, 200)}`)
  return said
}
