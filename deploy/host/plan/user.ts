// The user of a system service. The first install makes it, unless the host has a user of that name.

import { BatonError } from '../../../agent/words.ts'
import { findProgram, run } from '../../lib/shell.ts'
import { descriptionOf, findId } from '../place/identity.ts'

const MANAGER_TIMEOUT_MS = 130_000
/** The description of a user that an install of the service makes: a later one knows it by that, though nothing else is left of the first. */
const madeFor = (service: string) => `made by install.sh for ${service}`

export async function isMadeFor(service: string, user: string): Promise<boolean> {
  return (await descriptionOf(user)) === madeFor(service)
}

/** Resolves to a function that undoes it. */
export async function createUser(
  user: string,
  { service, home }: { service: string; home: string },
): Promise<() => Promise<void>> {
  if ((await findId(user)) !== null) return async () => {}
  if ((await findProgram('useradd')) !== null) {
    const shell = ['--shell', '/usr/sbin/nologin']
    const about = ['--comment', madeFor(service), '--home-dir', home, '--no-create-home']
    await run(['useradd', '--system', '--user-group', ...about, ...shell, user])
  } else if ((await findProgram('adduser')) !== null) {
    await run(['addgroup', '-S', user], { allowFailure: true })
    const about = ['-g', madeFor(service), '-h', home, '-s', '/sbin/nologin']
    await run(['adduser', '-S', '-D', '-H', ...about, '-G', user, user])
  } else {
    throw new BatonError('unsupported_host', 'expected `useradd` or `adduser`, found neither', {
      hint: 'create the user manually and specify it with `--run-as`',
    })
  }
  return () => removeUser(user)
}

/** Throws unexpected if the user is still there. */
export async function removeUser(user: string): Promise<void> {
  await endLingeringOf(user)
  const program = (await findProgram('userdel')) === null ? 'deluser' : 'userdel'
  const { stderr } = await run([program, user], { allowFailure: true })
  if ((await findId(user)) === null) return
  const said = stderr.trim().split('\n').at(-1)?.slice(0, 300) ?? ''
  throw new BatonError('unexpected', `the user ${user} was not removed${said === '' ? '' : `: ${said}`}`, {
    hint: `\`ps -u ${user}\` shows what is still running as this user; stop those processes, then run \`${program} ${user}\``,
  })
}

/** Ends the service manager that logind may run for a user without a session: what it starts is outside the service's sandbox. */
export async function endLingeringOf(user: string): Promise<void> {
  const identity = await findId(user)
  if (identity === null || identity.uid === 0 || (await findProgram('loginctl')) === null) return
  const quietly = { allowFailure: true, timeoutMs: MANAGER_TIMEOUT_MS }
  await run(['loginctl', 'disable-linger', user], quietly)
  await run(['systemctl', 'stop', `user@${identity.uid}.service`], quietly)
}
