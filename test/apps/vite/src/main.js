import './style.css'
import { version } from './version.js'

document.querySelector('h1').textContent = version
document.querySelector('button').onclick = async () => {
  const { text } = await import('./later.js')
  document.querySelector('#later').textContent = text
}
