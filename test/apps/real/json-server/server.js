const { existsSync, writeFileSync } = require('node:fs')
const path = require('node:path')
const jsonServer = require('json-server')

const file = path.join(process.env.STATE_DIRECTORY ?? '.', 'db.json')
if (!existsSync(file)) writeFileSync(file, '{ "posts": [] }\n')

const server = jsonServer.create()
const router = jsonServer.router(file)
const middlewares = jsonServer.defaults({ logger: false })

server.use(middlewares)
server.use(router)
server.listen(process.env.PORT ?? 3000, process.env.HOST)
