// Whether the controller is the limit of a fleet: one wave of 1, of 20 and of 200 hosts, each of which takes as long as a real one
// does and nothing else. The real deploy-fleet.sh, Ansible, playbook and callback; the hosts are stubs on this machine.

import { ratio, type FleetResult, type Wave } from './results.ts'
import { makeStubFleet, noAnsible } from '../lab/stub-fleet.ts'

/** What the fastest of twenty real hosts of the lab took: a download, a start, and a probation of 30 s. */
const DELAY_SECONDS = 33
/** each question of a look on a real host: an executable of 100 MB that starts, and asks the service or its feed */
const ANSWER_SECONDS = 0.3
const SIZES = [1, 20, 200] as const

/** Null where there is no Ansible; `say` has told so. */
export async function run({ say }: { say: (line: string) => void }): Promise<FleetResult | null> {
  if (noAnsible !== null) {
    say(`fleet: ${noAnsible}`)
    return null
  }
  const waves: Wave[] = []
  for (const hosts of SIZES) {
    say(`fleet: a wave of ${hosts}, each ${DELAY_SECONDS} s`)
    waves.push(await measure(hosts))
  }
  const one = waves[0]?.seconds ?? 1
  const result = {
    delaySeconds: DELAY_SECONDS,
    answerSeconds: ANSWER_SECONDS,
    waves: waves.map((wave) => ({ ...wave, ratio: ratio(wave.seconds, one) })),
  }
  return { ...result, markdown: markdownOf(result) }
}

async function measure(hosts: number): Promise<Wave> {
  await using fleet = await makeStubFleet(hosts)
  for (const host of fleet.names) {
    await fleet.set(host, 'delay', String(DELAY_SECONDS))
    await fleet.set(host, 'answers-after', String(ANSWER_SECONDS))
  }
  const begin = performance.now()
  const { code, result, stderr } = await fleet.move('--release', 'v1.1.0', '--waves', '100%', '--soak', '0')
  const seconds = (performance.now() - begin) / 1000
  if (code !== 0 || result?.counts['updated'] !== hosts)
    throw new Error(`the wave of ${hosts} ended with ${code}: ${stderr}`)
  return { hosts, seconds: Math.round(seconds * 10) / 10, ratio: 1 }
}

function markdownOf({ waves, delaySeconds, answerSeconds }: Omit<FleetResult, 'markdown'>): string {
  const told = waves.map(
    ({ hosts, seconds, ratio: times }) => `${hosts} hosts in ${seconds.toFixed(1)} s (${times.toFixed(2)})`,
  )
  return `One wave of \`deploy-fleet.sh\` on stubs that take ${delaySeconds} s to move and ${answerSeconds} s for each answer, so that the controller is measured, and times one host: ${told.join(', ')}.`
}
