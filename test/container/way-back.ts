// What is said of a service whose way back is slow, fails, or does not begin: it is asked first. Registered by bad.ts, in its lab.

import { equal, match, ok, rejects, withCode } from '../assert.ts'
import { type LabEngine, publish, type Registry } from '../lab/docker.ts'
import { type DeployEvent, formatDeployEvent } from '../../deploy/container/report.ts'
import { type Deployed, deployIn, healthy, probeImage, until } from './probe.ts'
import type { SideBySide } from './side-by-side.ts'

interface Lab {
  engine: LabEngine
  registry: Registry
  beside: SideBySide
  /** a healthy container of v1.0.0 */
  old(name: string): Promise<{ Id: string }>
  names(prefix: string): Promise<string[]>
}

export function wayBack({ engine, registry, beside, old, names }: Lab): void {
  beside.long(
    'an old container that is slow to come back has its own time, and is not called down meanwhile',
    async () => {
      const slow = ['/bin/sh', '-c', 'sleep 3; exec httpd -f -p 8080 -h /www-v0.9.1']
      await publish(registry.host, 'beacon', ['v0.9.1'], probeImage('v0.9.1', { Entrypoint: slow, Cmd: null }))
      await engine.docker('run', '-d', '--name', 'slow', '--restart', 'always', `${registry.host}/beacon:v0.9.1`)
      await healthy(engine, 'slow')
      const { Id } = await engine.inspect('slow')
      const ended = await deployIn(engine, { container: 'slow', release: 'v1.2.1', healthTimeoutMs: 300 })
      equal([ended.outcome, ended.healthy, (await engine.inspect('slow')).Id], ['reverted', true, Id])
      await engine.docker('rm', '-f', ...(await names('slow')))
    },
  )

  beside.long('an old container that answers is not called down, whatever its health check says', async () => {
    // well in its first life only
    const life =
      'if mkdir /data/first; then mkdir /data/well; else rmdir /data/well; fi; exec httpd -f -p 8080 -h /www-v0.9.2'
    const Healthcheck = { Test: ['CMD', '/bin/sh', '-c', '[ -d /data/well ]'], Interval: 3e8, Timeout: 5e9, Retries: 2 }
    await publish(
      registry.host,
      'beacon',
      ['v0.9.2'],
      probeImage('v0.9.2', { Entrypoint: ['/bin/sh', '-c', life], Cmd: null, Healthcheck }),
    )
    await engine.docker('run', '-d', '--name', 'once', '--restart', 'always', `${registry.host}/beacon:v0.9.2`)
    await until('well', async () => (await engine.inspect('once')).State.Health.Status === 'healthy')
    const ended = await deployIn(engine, { container: 'once', release: 'v1.2.1' })
    equal([ended.outcome, ended.healthy, (ended.events.at(-1) as { exit?: number }).exit], ['reverted', false, 8])
    ok(
      ended.events.some(
        (event) => event.event === 'warning' && /not healthy now, although it answers/.test(event.message),
      ),
    )
    await engine.docker('rm', '-f', ...(await names('once')))
  })

  beside(
    'a way back that fails asks before it says that the service is down, and never says to stop what answers',
    async () => {
      const told = ({ events, error, serves }: Deployed) => {
        const last = events.at(-1) as DeployEvent & { exit?: number }
        return {
          line: formatDeployEvent(last)[0] ?? '',
          exit: last.exit,
          serves,
          code: error?.code,
          hint: error?.hint ?? '',
        }
      }
      const { Id } = await old('stuck')
      const request = { container: 'stuck', release: 'v1.2.0' }
      const refused = async () => {
        throw new Error('refused')
      }
      // the new one answers, is not healthy, and cannot be stopped
      const answering = told(
        await deployIn(engine, { ...request, healthTimeoutMs: 3000 }, (client) => ({
          ...client,
          stop: (id, timeout) => (id === Id ? client.stop(id, timeout) : refused()),
        })),
      )
      equal([answering.code, answering.serves, answering.exit], ['undo_failed', true, 1])
      match(answering.line, /^failed: stuck answers, but not as expected$/)
      ok(!/docker stop/.test(answering.hint), answering.hint)
      // and neither can the old one be started
      const silent = told(
        await deployIn(engine, { ...request, healthTimeoutMs: 3000 }, (client) => ({
          ...client,
          start: (id) => (id === Id ? refused() : client.start(id)),
        })),
      )
      equal([silent.code, silent.serves, silent.exit], ['undo_failed', false, 9])
      match(silent.line, /^failed: stuck is down$/)
      match(silent.hint, new RegExp(`docker start ${Id.slice(0, 12)}`))
      equal((await deployIn(engine, { container: 'stuck', release: null })).outcome, 'rolled_back')
      await healthy(engine, 'stuck')
      equal((await engine.inspect('stuck')).Id, Id)
      await engine.docker('rm', '-f', ...(await names('stuck')))
    },
  )

  beside('changes nothing, and ends with 7, where the volume has no room for the copy of the database', async () => {
    const copy = JSON.stringify(['/bin/sh', '-c', 'dd if=/dev/zero of=/data/copy bs=1k count=2000'])
    const Labels = { 'org.opencontainers.image.version': 'v0.9.3', 'baton.snapshot': copy }
    await publish(registry.host, 'beacon', ['v0.9.3'], probeImage('v0.9.3', { Labels }))
    await engine.docker('volume', 'create', '-o', 'type=tmpfs', '-o', 'device=tmpfs', '-o', 'o=size=1m', 'full-data')
    await engine.docker('run', '-d', '--name', 'full', '-v', 'full-data:/data', `${registry.host}/beacon:v0.9.3`)
    await healthy(engine, 'full')
    const { Id } = await engine.inspect('full')
    const error = await rejects(deployIn(engine, { container: 'full', release: 'v1.1.0' }), withCode('refused'))
    match(error.message, /copying the data before the switch: .*No space left/)
    match((error as { hint?: string }).hint ?? '', /free up disk space on the container’s volume/)
    equal([(await engine.inspect('full')).Id, await names('full')], [Id, ['full']])
    await engine.docker('rm', '-f', 'full')
  })
}
