// The user of a system service. The first install makes it, unless the host has a user of that name.

import { BatonError } from '../../../agent/words.ts'
import { findProgram, run } from '../../lib/shell.ts'
import { findId } from '../place/identity.ts'

/** Resolves to a function that undoes it. */
export async function createUser(user: string, home: string): Promise<() => Promise<void>> {
  if ((await findId(user)) !== null) return async () => {}
  if ((await findProgram('useradd')) !== null) {
    const shell = ['--shell', '/usr/sbin/nologin']
    await run(['useradd', '--system', '--user-group', '--home-dir', home, '--no-create-home', ...shell, user])
  } else if ((await findProgram('adduser')) !== null) {
    await run(['addgroup', '-S', user], { allowFailure: true })
    await run(['adduser', '-S', '-D', '-H', '-h', home, '-s', '/sbin/nologin', '-G', user, user])
  } else {
    throw new BatonError('unsupported_host', 'expected `useradd` or `adduser`, found neither', {
      hint: 'create the user by hand and name it with `--run-as`',
    })
  }
  return () => removeUser(user)
}

export async function removeUser(user: string): Promise<void> {
  const program = (await findProgram('userdel')) === null ? 'deluser' : 'userdel'
  await run([program, user], { allowFailure: true })
}
