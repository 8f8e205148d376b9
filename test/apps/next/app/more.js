'use client'

import dynamic from 'next/dynamic'
import { useState } from 'react'

const Later = dynamic(() => import('./later'), { ssr: false })

/** loads a chunk only when somebody asks for it */
export default function More() {
  const [isOpen, open] = useState(false)
  return isOpen ? <Later /> : <button onClick={() => open(true)}>more</button>
}
