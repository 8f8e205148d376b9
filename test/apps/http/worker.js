import { parentPort } from 'node:worker_threads'
import { release } from 'baton-kit/release'

parentPort.on('message', ([a, b]) => parentPort.postMessage({ sum: a + b, tag: release.tag }))
