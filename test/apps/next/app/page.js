import More from './more'
import { version } from './version'

export default function Page() {
  return (
    <>
      <h1>hello</h1>
      <p>{version}</p>
      <More />
    </>
  )
}
