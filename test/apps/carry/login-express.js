import { appendFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { embed } from 'baton-kit/agent'
import express from 'express'
import { cookieFor, isOperator, PAGE } from './login.js'
import { port, settings, tag } from './settings.js'

async function main() {
  const app = express()
  const agent = await embed({ ...settings, authorize: isOperator })
  app.get('/healthz', (request, response) => response.send(tag))
  app.get('/', (request, response) => response.send(PAGE))
  app.get('/login/:name', (request, response) => response.set('Set-Cookie', cookieFor(request.params.name)).send('ok'))
  app.get('/own/latest', async (request, response) => response.send((await agent.check()).latest))
  app.get('/own/update', async (request, response) => response.send((await agent.update()).id))
  app.get('/own/back', async (request, response) => response.send((await agent.rollback({ now: true })).id))
  app.use((request, response, next) => agent.handle(request, response) || next())
  agent.on('change', ({ state, operation }) =>
    appendFileSync(join(settings.stateDirectory, 'changes'), `${tag} ${state} ${operation?.stage}\n`),
  )
  await agent.serve([{ server: createServer(app), port }])
}

void main()
