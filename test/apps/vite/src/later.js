import { version } from './version.js'
import './later.css'

export const text = `more of ${version}`
