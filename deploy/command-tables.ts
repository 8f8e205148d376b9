// What may be typed at each of the programs, for the page that lists it (make/cli-page.ts).

import { COMMAND as BUILD } from './build.ts'
import { COMMAND as CONTAINER } from './container/command.ts'
import { COMMAND as FLEET } from './deploy-fleet.ts'
import { COMMAND as SOURCE } from './deploy-source.ts'
import { COMMAND as HOST } from './deploy-systemd.ts'
import { COMMANDS } from './host/tree.ts'
import { COMMAND as IMAGE } from './image.ts'
import type { CommandLine } from './lib/flags.ts'
import { GROUNDS, OWN_WORDS, SCRIPT_WORDS } from './make/author-words.ts'
import type { ListedProgram } from './make/cli-page.ts'
import { TRUST_WORDS } from './trust/main.ts'

const named = (name: string, { args }: CommandLine, description: string): CommandLine => ({ name, args, description })

export const PROGRAMS: readonly ListedProgram[] = [
  {
    name: '<service>',
    about: 'On a host with an install. `install.sh` takes the same commands.',
    commands: COMMANDS,
  },
  {
    name: 'baton',
    about: 'In the folder of an application; `--dir` names another one.',
    commands: [...Object.values(OWN_WORDS), named('image', IMAGE, SCRIPT_WORDS.image)],
  },
  {
    name: 'baton deploy',
    about:
      'From a clone these are `deploy/deploy-systemd.sh`, `deploy-source.sh`, `deploy-container.sh` and `deploy-fleet.sh`. The release is `TAG` or `--release TAG`.',
    commands: [
      named('host', HOST, GROUNDS.host.description),
      named('source', SOURCE, GROUNDS.source.description),
      named('container', CONTAINER, GROUNDS.container.description),
      named('fleet', FLEET, GROUNDS.fleet.description),
    ],
  },
  { name: 'baton trust', about: 'From a clone: `npm run trust --`.', commands: TRUST_WORDS },
  {
    name: 'npm run',
    about: 'In a clone of Baton, for the reference service: `npm run build -- v1.0.0`.',
    commands: [named('build', BUILD, BUILD.description)],
  },
]
