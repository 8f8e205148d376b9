// How to update an install that is not managed. Loaded only there: a managed one needs none of it. Pure.

export type Unmanaged =
  | 'windows'
  | 'container'
  | 'source'
  | 'by_hand'
  | 'other_executable'
  | 'node'
  | 'cluster'
  | 'first_code'

export const IN_CONTAINER = 'this is a container: update its image instead'

/** Why, where one sentence says it for every install. */
export const REASONS: Partial<Record<Unmanaged, string>> = {
  windows: 'on Windows a running executable cannot be replaced',
  cluster: 'this service runs as several processes (node:cluster), so a new version cannot take over from it',
  container: IN_CONTAINER,
  source: 'this process runs from source, not from an executable',
}

/** What to do instead, one sentence. */
export const ROUTES: Record<Unmanaged, string> = {
  windows: 'download the new release asset, replace the executable and restart the process',
  container: "on the container's host, pull the new image and recreate the container",
  source: 'pull the source, rebuild and restart: `deploy-source.sh --release <tag>`',
  cluster: 'restart all processes of the service with the new executable, or run the service as a single process',
  by_hand:
    'download the new release asset, replace the executable and restart the process, or run `install.sh` for a managed install',
  other_executable: 'update the executable that was installed, or run `install.sh` to make this one a managed install',
  first_code:
    'build the service with `baton build`, or set `order: "start-first"` if two of its processes may run at once; then replace the executable and restart',
  node: 'replace the executable with one built on Node 26.1 or later, and restart',
}

/**
 * The whole command that updates this container, to run on its host. An image of `baton image` has a label by which the command also finds
 * the container that comes after this one; of another image it has the id alone. `id` null: not known. Pure.
 */
export function updateCommand(
  { id, service }: { id: string | null; service: string },
  environment: Readonly<Record<string, string | undefined>>,
): string {
  const image = environment['BATON_DEPLOY_IMAGE'] ?? ''
  const socket = '/var/run/docker.sock'
  const program = image === '' ? 'deploy-container.sh' : `docker run --rm -v ${socket}:${socket} ${image} deploy`
  const container = image === '' ? id?.slice(0, 12) : `label=baton.service=${service}`
  return `${program}${container === undefined ? '' : ` --container ${container}`} --release latest`
}
