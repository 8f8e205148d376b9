// Python, in which the fleet's modules are written.

import { spawnSync } from 'node:child_process'

/** Why this machine runs no Python, or null. For `suite(name, { skip })`. */
export const noPython: string | null = spawnSync('python3', ['--version']).status === 0 ? null : 'needs Python'
