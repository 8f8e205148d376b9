// A folder over HTTP on loopback: by nginx (sendfile) where it is there, else by Node in a process of its own. Both sides of a
// comparison are served by the same one.

import { createReadStream } from 'node:fs'
import { stat, writeFile } from 'node:fs/promises'
import { createServer } from 'node:http'
import { join, normalize } from 'node:path'
import { fileURLToPath } from 'node:url'
import { freePort } from '../fixtures/install.ts'
import { end, start, untilListens } from './processes.ts'
import type { Tools } from './setup.ts'

export interface FileServer extends AsyncDisposable {
  url: string
  by: string
}

export async function serveFolder(folder: string, place: string, tools: Tools): Promise<FileServer> {
  const port = await freePort()
  const started =
    'missing' in tools.nginx
      ? start(process.execPath, [fileURLToPath(import.meta.url), folder, String(port)])
      : start(tools.nginx.path, ['-p', place, '-c', await writeConfiguration(folder, place, port), '-e', 'error.log'], {
          env: tools.nginx.env,
        })
  await untilListens(port)
  return {
    url: `http://127.0.0.1:${port}/`,
    by: 'missing' in tools.nginx ? 'node' : tools.nginx.version,
    [Symbol.asyncDispose]: () => end(started.pid),
  }
}

async function writeConfiguration(folder: string, place: string, port: number): Promise<string> {
  const path = join(place, 'files.conf')
  const temporary = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    (name) => `${name}_temp_path ${place}/${name};`,
  )
  const text = `${process.getuid?.() === 0 ? 'user root;' : ''}
daemon off;
worker_processes 1;
pid ${place}/files.pid;
error_log ${place}/error.log;
events { worker_connections 256; }
http {
  ${temporary.join(' ')}
  access_log off;
  sendfile on;
  tcp_nopush on;
  server { listen 127.0.0.1:${port}; root ${folder}; }
}
`
  await writeFile(path, text)
  return path
}

if (import.meta.main) {
  const [folder = '.', port = '0'] = process.argv.slice(2)
  const server = createServer((request, response) => {
    const path = join(folder, normalize(new URL(request.url ?? '/', 'http://localhost').pathname))
    stat(path).then(
      ({ size }) => {
        response.writeHead(200, { 'content-length': size })
        createReadStream(path, { highWaterMark: 1024 * 1024 }).pipe(response)
      },
      () => response.writeHead(404).end(),
    )
  })
  server.listen(Number(port), '127.0.0.1')
}
