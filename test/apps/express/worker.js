const { parentPort } = require('node:worker_threads')

parentPort.on('message', ([a, b]) => parentPort.postMessage(a + b))
