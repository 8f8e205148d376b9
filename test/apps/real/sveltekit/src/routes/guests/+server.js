import { json } from '@sveltejs/kit'
import { all } from '#lib/server/guests.js'

export const GET = () => json(all())
