// A login of the application's own, for the examples of docs/author/in-my-product.md: a signed cookie.

import { createHmac, timingSafeEqual } from 'node:crypto'

const SECRET = 'of the application'
const sealed = (name) => `${name}.${createHmac('sha256', SECRET).update(name).digest('hex')}`

export const cookieFor = (name) => `login=${sealed(name)}; HttpOnly; SameSite=Lax; Path=/`

/** Whether the request is of somebody who may update. */
export function isOperator({ headers }) {
  const [, given = ''] = /(?:^|; )login=([^;]*)/.exec(headers.cookie ?? '') ?? []
  const wanted = sealed('operator')
  return given.length === wanted.length && timingSafeEqual(Buffer.from(given), Buffer.from(wanted))
}

export const PAGE = `<!doctype html><meta charset="utf-8"><title>Shop</title>
<script type="module" src="/web/badge.js"></script>
<h1>Shop</h1><baton-badge></baton-badge>`
