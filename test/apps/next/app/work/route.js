export const dynamic = 'force-dynamic'
export const GET = () => Response.json({ at: Date.now() })
