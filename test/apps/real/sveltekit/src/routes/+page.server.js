import { fail } from '@sveltejs/kit'
import { add, newest } from '#lib/server/guests.js'

export const load = () => ({ guests: newest() })

export const actions = {
  default: async ({ request }) => {
    const name = (await request.formData()).get('name')
    if (!name) return fail(400, { missing: true })
    return { id: add(String(name)) }
  },
}
