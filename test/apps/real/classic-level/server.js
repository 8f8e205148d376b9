import { createServer } from 'node:http'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { ClassicLevel } from 'classic-level'

const db = new ClassicLevel(join(process.env.STATE_DIRECTORY ?? '.', 'db'))
await db.open()

const server = createServer(async (request, response) => {
  if (request.method === 'PUT') {
    await db.put(request.url, await text(request))
    return response.end('stored\n')
  }
  const value = await db.get(request.url)
  response.writeHead(value === undefined && request.url !== '/' ? 404 : 200).end(value)
})
server.listen(process.env.PORT ?? 3000, process.env.HOST)
