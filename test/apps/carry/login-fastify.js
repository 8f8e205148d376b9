import { listen } from 'baton-kit/fastify'
import Fastify from 'fastify'
import { cookieFor, isOperator, PAGE } from './login.js'
import { port, settings, tag } from './settings.js'

async function main() {
  const app = Fastify()
  app.get('/healthz', () => tag)
  app.get('/', (request, reply) => reply.type('text/html').send(PAGE))
  app.get('/login/:name', (request, reply) => reply.header('set-cookie', cookieFor(request.params.name)).send('ok'))
  await listen(app, { ...settings, port, authorize: isOperator })
}

void main()
