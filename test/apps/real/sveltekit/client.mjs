// Clients of a SvelteKit application by fetch: each signs by the form, as a browser without scripts does, and then opens the page of its
// row; now and then the front page and a script of the build. Without a second try, until stdin ends; then all rows are read once more, and
// one line of JSON is printed.
// lost: requests without their right answer. doubled: rows that are there twice. missing: acknowledged rows that are not there.
// A request that ends with the process of the broken release, at most one of each client, is not lost but noted: docs/about/services.md says so.

import { setTimeout as sleep } from 'node:timers/promises'

const CLIENTS = 6
const url = `http://127.0.0.1:${process.env.PORT}`
// behind a proxy that ends TLS, which is what adapter-node takes for granted
const origin = url.replace('http:', 'https:')
const notes = []
const acknowledged = []
let [pages, lost, died] = [0, 0, 0]
let broken = false
let working = true

process.stdin.on('data', () => (broken = true)).once('end', () => (working = false))
await Promise.all(Array.from({ length: CLIENTS }, (_, index) => work(index)))
const there = await (await fetch(`${url}/guests`)).json()
const known = new Set(there)
notes.push(`${pages} pages and files`, `${died} requests ended with the broken release`)
const total = {
  done: acknowledged.length,
  lost,
  doubled: there.length - known.size,
  missing: acknowledged.filter((name) => !known.has(name)).length,
  notes,
}
process.stdout.write(`${JSON.stringify(total)}\n`, () => process.exit())

async function work(client) {
  for (let number = 1; working; number++) {
    const name = `guest ${client}-${number}`
    try {
      const signed = await text('/', { method: 'POST', headers: { origin }, body: new URLSearchParams({ name }) })
      const id = /signed as (\d+)/.exec(signed)?.[1]
      if (id === undefined) throw new Error(`signing ${name}: no row on the page`)
      acknowledged.push(name)
      const page = await text(`/guests/${id}`)
      if (!page.includes(`<h1>${name}</h1>`)) throw new Error(`/guests/${id}: ${name} is not on the page`)
      pages++
      if (number % 10 === 0) await frontPage()
      if (client === 0 && number === 1) process.stderr.write('working\n')
    } catch (error) {
      if (broken && died < CLIENTS && error.cause !== undefined) died++
      else lost++
      if (notes.length < 10) notes.push(`${error.message} ${error.cause?.code ?? error.cause?.message ?? ''}`)
    }
    await sleep(40)
  }
}

/** And a script that it names, under its name with a hash of what is in it. */
async function frontPage() {
  const page = await text('/')
  const script = /"(\.\/_app\/immutable\/[^"]+\.js)"/.exec(page)?.[1]
  if (script === undefined) throw new Error('no script on the front page')
  if (!(await text(script.slice(1))).includes('import')) throw new Error(`${script} is no script`)
  pages += 2
}

async function text(path, options) {
  const response = await fetch(url + path, { ...options, headers: { accept: 'text/html', ...options?.headers } })
  if (!response.ok) throw new Error(`${response.status} of ${path}`)
  return await response.text()
}
