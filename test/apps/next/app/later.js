import { version } from './version'

export default function Later() {
  return <p id="later">more of {version}</p>
}
