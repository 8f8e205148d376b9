const { createServer } = require('node:http')
const express = require('express')
const RED = require('node-red')

const app = express()
const server = createServer(app)
const settings = {
  httpAdminRoot: '/red',
  httpNodeRoot: '/api',
  userDir: process.env.STATE_DIRECTORY ?? __dirname,
  flowFile: 'flows.json',
  credentialSecret: 'a test',
  telemetry: { enabled: false },
  logging: { console: { level: 'warn', metrics: false, audit: false } },
}
app.get('/', (request, response) => response.send('flows\n'))

RED.init(server, settings)
app.use(settings.httpAdminRoot, RED.httpAdmin)
app.use(settings.httpNodeRoot, RED.httpNode)
RED.start().then(() => server.listen(process.env.PORT ?? 8000, process.env.HOST))
