// Serves what Vite has built; every other path is the page, as an application of one page does.
import { createReadStream, existsSync, statSync } from 'node:fs'
import { createServer } from 'node:http'
import { extname, join, normalize } from 'node:path'

const TYPES = { '.js': 'text/javascript', '.css': 'text/css', '.html': 'text/html' }
const dist = join(import.meta.dirname, 'dist')

createServer((request, response) => {
  const file = join(dist, normalize(decodeURIComponent(request.url.split('?')[0])))
  const path = existsSync(file) && statSync(file).isFile() ? file : join(dist, 'index.html')
  response.writeHead(200, { 'content-type': TYPES[extname(path)] ?? 'application/octet-stream' })
  createReadStream(path).pipe(response)
}).listen(process.env.PORT ?? 3000)
