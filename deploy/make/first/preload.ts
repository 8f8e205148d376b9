// Loads the release's file of `nodeFlags`' modules before the application, as `node --import` does.
// Must hold: not one line of the application runs before its end. Workers load it too.

import { pathToFileURL } from 'node:url'
import type { WorkerOptions } from 'node:worker_threads'

/** what Node ends with if a top-level await never ends */
const EXIT_UNSETTLED = 13

/** Calls `then` once the file at `path` is loaded. If it throws, this process ends as Node does. */
export function afterPreload(path: string, then: () => void): void {
  const { href } = pathToFileURL(path)
  const { compileFunction, constants } = process.getBuiltinModule('node:vm')
  // the script of an executable can import nothing from the disk by itself
  const load = compileFunction('return import(href)', ['href'], {
    filename: path,
    importModuleDynamically: constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
  }) as (href: string) => Promise<unknown>
  process.exitCode = EXIT_UNSETTLED
  void load(href).then(() => {
    process.exitCode = undefined
    inWorkers(href)
    setImmediate(then) // what the application throws is no rejection of this import
  })
}

/** Node gives a worker the flags of its process, and this one has none of them. */
function inWorkers(href: string): void {
  const workers = process.getBuiltinModule('node:worker_threads')
  const { Worker } = workers
  class Preloading extends Worker {
    constructor(file: string | URL, options: WorkerOptions = {}) {
      super(file, { ...options, execArgv: [`--import=${href}`, ...(options.execArgv ?? [])] })
    }
  }
  Object.defineProperty(Preloading, 'name', { value: 'Worker' })
  Object.assign(workers, { Worker: Preloading })
  process.getBuiltinModule('node:module').syncBuiltinESMExports()
}
