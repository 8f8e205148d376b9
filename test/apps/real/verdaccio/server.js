const { join } = require('node:path')
const { runServer } = require('verdaccio')

const state = process.env.STATE_DIRECTORY ?? __dirname
const configuration = {
  self_path: state,
  storage: join(state, 'storage'),
  auth: { htpasswd: { file: join(state, 'htpasswd') } },
  packages: { '**': { access: '$all', publish: '$all' } },
  log: { type: 'stdout', format: 'pretty', level: 'error' },
}

runServer(configuration).then((app) => app.listen(process.env.PORT ?? 4873, process.env.HOST))
