// Checks that the configuration can be read, that it keeps its secret, and that its port is free.

import { stat } from 'node:fs/promises'
import { createServer } from 'node:net'
import type { Receipt } from '../../../agent/install.ts'
import { type Access, readAccess } from '../service/configuration.ts'
import { listensEverywhere } from '../../lib/open-files.ts'
import type { Outside } from '../service/outside.ts'
import { failure, type Finding, ok, type Subject, warning } from './finding.ts'

/** a shorter one can be guessed */
const PASSWORD_MIN = 16

export async function checkConfiguration({ receipt }: Subject, outside: Outside): Promise<Finding[]> {
  if (receipt === null) return []
  const { address, token, unknown, faults } = await readAccess(receipt.configPath)
  const findings: Finding[] = []
  const { mode } = await stat(receipt.configPath)
  if ((mode & 0o077) !== 0) {
    findings.push(
      warning(
        'configuration',
        `${receipt.configPath} holds the password and others can read it`,
        `chmod 600 ${receipt.configPath}`,
      ),
    )
  }
  if (token === null) {
    findings.push(
      failure(
        'configuration',
        `no dashboard.password is set in ${receipt.configPath}: the update endpoints are closed`,
        'set one and restart the service',
      ),
    )
  }
  if (token !== null && token.length < PASSWORD_MIN) {
    findings.push(
      warning(
        'configuration',
        `dashboard.password has fewer than ${PASSWORD_MIN} characters: it can be guessed`,
        'choose a longer one and restart the service',
      ),
    )
  }
  for (const { name, expected } of unknown) {
    findings.push(
      warning(
        'configuration',
        `nobody reads \`${name}\` in ${receipt.configPath}`,
        `expected one of ${expected.join(', ')}`,
      ),
    )
  }
  for (const fault of faults) {
    findings.push(
      failure(
        'configuration',
        `${receipt.configPath}: ${fault}`,
        'the service would not start with it: correct it before the next start',
      ),
    )
  }
  findings.push(...(await portFindings(receipt, address, outside)))
  return findings.length > 0 ? findings : [ok('configuration', receipt.configPath)]
}

async function portFindings(receipt: Receipt, address: Access['address'], outside: Outside): Promise<Finding[]> {
  if (!('port' in address)) return []
  const { host, port, isEverywhere } = address
  const { active } = await outside.supervisor(receipt).state()
  if (!active && !(await isFree(host, port))) {
    const message = `the service does not run, and something else listens on ${host}:${port}`
    return [failure('port', message, `end it, or change \`listen\` in ${receipt.configPath}`)]
  }
  if (!active || isEverywhere || !(await listensEverywhere(port))) return []
  return [
    warning(
      'port',
      `the configuration says ${host}, but port ${port} is open at every address of this host`,
      'its author has to pass the host to `listen` (HOST in its environment); until then let a firewall close it',
    ),
  ]
}

async function isFree(host: string, port: number): Promise<boolean> {
  if (port === 0) return true
  return await new Promise((resolve) => {
    const server = createServer()
    server.once('error', (error: NodeJS.ErrnoException) => resolve(error.code !== 'EADDRINUSE'))
    server.listen({ host, port }, () => server.close(() => resolve(true)))
  })
}
