// A container that belongs to a compose project is recreated by compose, so that its file stays the truth.

import { BatonError } from '../../../agent/errors.ts'
import type { ContainerInspection } from './inspection.ts'
import { labelsOf } from './inspection.ts'
import type { Request, Tools } from './recreate.ts'
import type { Ended } from './report.ts'

export interface Project {
  name: string
  service: string
  directory: string
  files: string[]
}

/** Null where the container belongs to none. */
export function composeProjectOf(container: ContainerInspection | null): Project | null {
  const labels = container === null ? {} : labelsOf(container)
  const label = (key: string) => labels[`com.docker.compose.${key}`]
  const [name, service] = [label('project'), label('service')]
  if (name === undefined || service === undefined) return null
  return {
    name,
    service,
    directory: label('project.working_dir') ?? '',
    files: (label('project.config_files') ?? '').split(',').filter((file) => file !== ''),
  }
}

export async function deployCompose(_project: Project, _request: Request, _tools: Tools): Promise<Ended> {
  throw new BatonError('refused', 'compose: not yet')
}
