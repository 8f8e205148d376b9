import { error } from '@sveltejs/kit'
import { named } from '#lib/server/guests.js'

export const load = ({ params }) => {
  const name = named(Number(params.id))
  return name === undefined ? error(404, 'no such guest') : { name }
}
