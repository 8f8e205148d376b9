// Clients of a server of files by fetch, without a second try. Until stdin ends; then one line of JSON is printed.
// lost: requests without the page. doubled and missing: nothing is written.

import { tell, work } from './working.mjs'

const url = `http://127.0.0.1:${process.env.PORT}/`
let done = 0

const lost = await work({ clients: 6, pauseMs: 30 }, async () => {
  const response = await fetch(url)
  const text = await response.text()
  if (response.status !== 200 || !text.includes('</title>'))
    throw new Error(`${response.status}: ${text.slice(0, 200)}`)
  done++
})
tell({ done, lost, doubled: 0, missing: 0 })
