// The environment that a service has without systemd, apart from what its operator sets for it.

/** every service gets these */
export const BASE_ENVIRONMENT = {
  PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin',
  LANG: 'C.UTF-8',
}
/** what it gets from the environment of the command that starts it */
const PASSED = ['LANG', 'TZ', 'NODE_EXTRA_CA_CERTS', 'SSL_CERT_FILE', 'SSL_CERT_DIR']
const PROXY = /^(https?|no|all)_proxy$/i

export function isPassed(name: string): boolean {
  return PASSED.includes(name) || PROXY.test(name)
}

/** What an install gives to every service, and nothing else of `own`, the environment of this command. */
export function cleanEnvironment(own: Readonly<NodeJS.ProcessEnv>): NodeJS.ProcessEnv {
  // without LD_LIBRARY_PATH the Node of some hosts does not run at all
  const found = Object.entries(own).filter(([name]) => isPassed(name) || name === 'LD_LIBRARY_PATH')
  return { ...BASE_ENVIRONMENT, ...Object.fromEntries(found) }
}
