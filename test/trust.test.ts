// What a host believes of a signed feed, and what it refuses: the attack table of The Update Framework, each against a feed that
// signs as far as the attacker could. Refused means: with its code, nothing on the disk changed, nothing run.

import { cp, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { createServer, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { makeDisk } from '../agent/disk/disk.ts'
import { BatonError } from '../agent/words/errors.ts'
import type { OpenFeed, Anchor } from '../agent/words/release.ts'
import { makeCheck } from '../agent/update/steps/check.ts'
import { makeDownload } from '../agent/update/steps/download.ts'
import { makeVerify } from '../agent/update/steps/verify.ts'
import { faultsOfRoot } from '../agent/update/trust/anchor.ts'
import { type Steps, update } from '../agent/update/story.ts'
import { makeSigner } from '../deploy/trust/keys.ts'
import { sealed } from '../deploy/trust/repository.ts'
import * as assert from './assert.ts'
import { script } from './lab/dist.ts'
import { labFeed, type LabFeedOptions } from './lab/feed.ts'
import { releaseServer } from './lab/release-server.ts'
import { FAR, makeSignedDist, PAST, type Signed, type SignedDist, stateFolder, targetsOf } from './lab/signed-dist.ts'
import { suite } from './suite.ts'

const test = suite('trust')

interface Host extends AsyncDisposable {
  state: string
  feed(setting: string, options?: LabFeedOptions): OpenFeed
  /** The story as far as the swap; the tag that would be swapped in, or the code and the message of the refusal. */
  update(setting: string, tag?: string | null): Promise<string>
  /** what it knows, as it is on the disk */
  known(): Promise<string>
}

/** A host that was built with a root. Whatever it runs of a release leaves a mark. */
async function makeHost(anchor: Anchor, current = 'v1.0.0'): Promise<Host> {
  const folder = await stateFolder()
  await mkdir(join(folder.path, 'bin'))
  const feed = (setting: string, options: LabFeedOptions = {}): OpenFeed =>
    labFeed(setting, { trust: anchor, stateDirectory: folder.path, timeoutMs: 2_000, patienceMs: 50, ...options })
  return {
    state: folder.path,
    feed,
    async update(setting, tag = null) {
      await using open = feed(setting)
      const disk = makeDisk()
      const partialPath = join(folder.path, 'bin', '.beacon.partial')
      let swapped: string | null = null
      const unused = (): never => assert.unreachable() as never
      try {
        const steps: Steps = {
          check: makeCheck({ feed: open, current: () => current, skip: () => false }),
          download: makeDownload({ feed: open, disk, partialPath, stallMs: 200, reconnectMs: 1, onProgress: () => {} }),
          verify: makeVerify({ service: 'beacon', disk, timeoutMs: 5_000 }),
          rest: () => Promise.resolve(),
          swap: async (_candidate, release) => {
            swapped = release.tag
          },
          restore: unused,
          restart: () => Promise.resolve(),
        }
        await update(tag, steps, new AbortController().signal)
        return swapped ?? 'up_to_date'
      } catch (error) {
        assert.instance(error, BatonError)
        const { code, message } = error as BatonError
        assert.is(swapped, null)
        return `${code} ${message}`
      }
    },
    known: () => readFile(join(folder.path, 'update', 'trust.json'), 'utf8'),
    [Symbol.asyncDispose]: () => folder[Symbol.asyncDispose](),
  }
}

test('a good feed: the highest signed release, on any kind of feed, and what is known is kept', async () => {
  await using it = await makeSignedDist(['v1.0.0', 'v1.10.0', 'v1.9.0'])
  await using server = await releaseServer({ dir: it.dist.dir, quota: 0 })
  for (const setting of [it.dist.dir, server.staticUrl, server.feed]) {
    await using host = await makeHost(it.anchor)
    assert.is(await host.update(setting), 'v1.10.0')
    assert.is(await host.update(setting, 'v1.9.0'), 'v1.9.0')
    const known = JSON.parse(await host.known()) as { files: Record<string, string> }
    assert.equal(Object.keys(known.files).toSorted(), ['root', 'snapshot', 'targets', 'timestamp'])
    const { signed, metadata, warning } = await host.feed(setting).trust()
    assert.equal([signed, warning, metadata.length], [true, null, 4])
  }
  assert.is(server.requests.filter(({ path }) => path.startsWith('/api/')).length, 0) // no quota is used
})

test('a private repository: metadata and assets come through the API, with the token', async () => {
  await using it = await makeSignedDist(['v1.0.0', 'v1.1.0'])
  await using server = await releaseServer({ dir: it.dist.dir, token: 'sesame' })
  await using host = await makeHost(it.anchor)
  await using feed = host.feed(server.feed, { environment: { GH_ENTERPRISE_TOKEN: 'sesame' } })
  const release = (await feed.latest(() => false)).release ?? (assert.unreachable() as never)
  assert.is(release.tag, 'v1.1.0')
  const { stream } = await feed.bytes(release.asset, 0, null, new AbortController().signal)
  assert.is(Buffer.concat(await Array.fromAsync(stream)).length, release.asset.sizeBytes)
})

test('an unchanged feed costs two requests, and writes nothing', async () => {
  await using it = await makeSignedDist(['v1.0.0'])
  await using server = await releaseServer({ dir: it.dist.dir })
  await using host = await makeHost(it.anchor)
  await host.update(server.staticUrl)
  const known = await host.known()
  server.requests.length = 0
  await host.update(server.staticUrl)
  assert.equal(
    server.requests.map(({ path, status }) => `${path.split('/').at(-1)} ${status}`),
    ['2.root.json 404', 'timestamp.json 200', 'release.json 200'],
  )
  assert.is(await host.known(), known)
})

interface Attack {
  /** what the attacker does after the host has seen the genuine feed once */
  act(it: SignedDist): Promise<void>
  expected: RegExp
  tag?: string
  /** before the host looks for the first time too */
  fresh?: boolean
  setup?: (it: SignedDist) => Promise<void>
  options?: Parameters<typeof makeSignedDist>[1]
}

const stranger = makeSigner()
const evil = (marker: string) => () => `#!/bin/sh\ntouch ${marker}\necho "beacon v1.2.0"\n`

/** v1.2.0 of the attacker, as a release of its own or in place of a genuine one. */
async function plant(it: SignedDist, tag = 'v1.2.0'): Promise<void> {
  await it.dist.add(tag, { executable: evil(join(it.dist.dir, 'ran')) })
}

async function keep(it: SignedDist, ...names: string[]): Promise<() => Promise<void>> {
  const kept = await Promise.all(names.map(async (name) => [name, await readFile(join(it.folder, name))] as const))
  return async () => {
    for (const [name, bytes] of kept) await writeFile(join(it.folder, name), bytes)
  }
}

const signedBy = (it: SignedDist, keys: Parameters<SignedDist['publish']>[0] & object): Promise<void> =>
  it.publish(keys)
const ATTACKS: Record<string, Attack> = {
  'arbitrary software: a release that nobody has signed is not the latest': {
    act: (it) => plant(it, 'v1.2.0'),
    expected: /^up_to_date$/,
  },
  'arbitrary software: a release that nobody has signed, by its tag': {
    act: (it) => plant(it, 'v1.2.0'),
    tag: 'v1.2.0',
    expected: /^not_signed .*release v1\.2\.0 in .* is not signed/,
  },
  'arbitrary software: asset, sums and release.json of a signed release replaced together': {
    act: (it) => plant(it, 'v1.0.0'),
    tag: 'v1.0.0',
    expected:
      /^release_unusable .*(sha256 of release\.json: expected \w+… \(as signed\)|is larger than its signed size)/,
    options: {},
  },
  'arbitrary software: everything signed anew with keys of the attacker': {
    act: async (it) => {
      await plant(it)
      const own = [stranger]
      await signedBy(it, { signers: { targets: own, snapshot: own, timestamp: own } })
    },
    expected:
      /^signature_missing .*timestamp\.json is not signed by any of the keys that root\.json \(version 1\) lists/,
  },
  'arbitrary software: a root of the attacker': {
    act: async (it) => {
      await plant(it)
      await it.publishRoot(
        (root, keys) => {
          const one = { keyids: [stranger.keyid], threshold: 1 }
          root['roles'] = { root: one, targets: one, snapshot: one, timestamp: one }
          keys.root = [stranger]
          keys.targets = keys.snapshot = keys.timestamp = [stranger]
        },
        [stranger],
      )
      await it.publish()
    },
    expected: /^signature_missing .*root\.json has too few signatures: 0 of 2/,
  },
  'compromise of timestamp: it names a snapshot that nobody has signed': {
    act: async (it) => {
      await plant(it)
      const own = [stranger]
      await signedBy(it, { signers: { targets: own, snapshot: own } })
    },
    expected: /^signature_missing .*snapshot\.json is not signed by any of the keys/,
  },
  'compromise of snapshot and timestamp: targets that nobody has signed': {
    act: async (it) => {
      await plant(it)
      await signedBy(it, { signers: { targets: [stranger] } })
    },
    expected: /^signature_missing .*targets\.json is not signed by any of the keys/,
  },
  'compromise of one of two keys of targets': {
    options: { counts: { targets: 2 }, thresholds: { targets: 2 } },
    act: async (it) => {
      await plant(it)
      await signedBy(it, { signers: { targets: it.keys.targets.slice(0, 1) } })
    },
    expected: /^threshold_not_met .*targets\.json has too few signatures: 1 of 2/,
  },
  ...Object.fromEntries(
    (['snapshot', 'timestamp'] as const).map((role): [string, Attack] => [
      `compromise of one of two keys of ${role}`,
      {
        options: { counts: { [role]: 2 }, thresholds: { [role]: 2 } },
        act: async (it) => {
          await plant(it)
          await signedBy(it, { signers: { [role]: it.keys[role].slice(0, 1) } })
        },
        expected: new RegExp(`^threshold_not_met .*${role}\\.json has too few signatures: 1 of 2`),
      },
    ]),
  ),
  'compromise of one of two keys of targets, who signs with another key too': {
    options: { counts: { targets: 2 }, thresholds: { targets: 2 } },
    act: async (it) => {
      await plant(it)
      await signedBy(it, { signers: { targets: [...it.keys.targets.slice(0, 1), stranger] } })
    },
    expected: /^signature_missing .*the root does not list key \w+… for this role/,
  },
  'compromise of one of three root keys': {
    act: async (it) => {
      await plant(it)
      const [one] = it.keys.root
      await it.publishRoot(
        (_root, keys) => {
          keys.targets = keys.snapshot = keys.timestamp = [stranger]
        },
        one === undefined ? [] : [one],
      )
      await it.publish()
    },
    expected: /^threshold_not_met .*root\.json has too few signatures: 1 of 2/,
  },
  'one key counted twice: signed twice': {
    options: { counts: { targets: 2 }, thresholds: { targets: 2 } },
    act: async (it) => {
      await plant(it)
      const [one] = it.keys.targets
      if (one === undefined) return
      await signedBy(it, { signers: { targets: [one, one] } })
    },
    expected: /^metadata_invalid .*key \w+… signed twice/,
  },
  'one key counted twice: a root that gives it two ids': {
    act: async (it) => {
      const [one] = it.keys.targets
      await it.publishRoot((root, keys) => {
        const all = Object.values(keys).flat()
        root['keys'] = { ...Object.fromEntries(all.map(({ keyid, key }) => [keyid, key])), ['ab'.repeat(32)]: one?.key }
      })
    },
    expected: /^metadata_invalid .*its ID does not match its checksum/,
  },
  'rollback of timestamp': {
    setup: (it) => it.publish(),
    act: (it) => it.publish({ versions: { timestamp: 1 } }),
    expected: /^metadata_older .*timestamp\.json: this host has seen version 2, but the feed offers 1/,
  },
  'rollback of snapshot': {
    setup: (it) => it.publish(),
    act: (it) => it.publish({ versions: { snapshot: 1 } }),
    expected: /^metadata_older .*snapshot\.json: this host has seen version 2, but the feed offers 1/,
  },
  'rollback of targets': {
    setup: (it) => it.publish(),
    act: (it) => it.publish({ versions: { targets: 1 } }),
    expected: /^metadata_older .*targets\.json: this host has seen version 2, but the feed offers 1/,
  },
  'rollback of root: version 2 again as version 3': {
    setup: async (it) => {
      await it.publishRoot(() => {})
      await it.publish()
    },
    act: async (it) => writeFile(join(it.folder, '3.root.json'), await readFile(join(it.folder, '2.root.json'))),
    expected: /^metadata_invalid .*Expected version 3, got 2/,
  },
  'freeze: timestamp has expired': {
    act: (it) => it.publish({ edit: { timestamp: (signed) => void (signed.expires = PAST) } }),
    expected: /^metadata_expired .*timestamp\.json expired on 2020-01-01T00:00:00Z; this host's clock says 20/,
  },
  'freeze: snapshot has expired': {
    act: (it) => it.publish({ edit: { snapshot: (signed) => void (signed.expires = PAST) } }),
    expected: /^metadata_expired .*snapshot\.json expired/,
  },
  'freeze: targets have expired': {
    act: (it) => it.publish({ edit: { targets: (signed) => void (signed.expires = PAST) } }),
    expected: /^metadata_expired .*targets\.json expired/,
  },
  'freeze: root has expired': {
    act: (it) => it.publishRoot((root) => void (root.expires = PAST)),
    expected: /^metadata_expired .*root\.json expired on 2020/,
  },
  'fast-forward: a version beyond all bounds': {
    act: (it) => it.publish({ versions: { timestamp: 2 ** 31 + 1 } }),
    expected: /^metadata_invalid .*expected `version` from 1 to 2147483648/,
  },
  'mix and match: an older snapshot with a newer timestamp': {
    setup: (it) => it.publish(),
    act: async (it) => {
      const timestamp = await it.read('timestamp.json')
      const older = await readFile(join(it.folder, '1.snapshot.json'))
      await it.publish()
      await writeFile(join(it.folder, `${it.versions.snapshot}.snapshot.json`), older)
      assert.ok(timestamp.signed.version > 0)
    },
    expected: /^metadata_mixed /,
  },
  'mix and match: targets of another time under the name of the newest': {
    setup: (it) => it.publish(),
    act: async (it) => {
      await it.publish()
      const older = await readFile(join(it.folder, '1.targets.json'))
      await writeFile(join(it.folder, `${it.versions.targets}.targets.json`), older)
    },
    expected: /^metadata_mixed /,
  },
  'wrong software: a release of another service, signed by the same keys': {
    act: async (it) => {
      await it.dist.add('v1.2.0', { service: 'lighthouse' })
      await it.publish({ targets: await targetsOf(it.dist.dir, 'beacon', { 'v1.2.0': { service: 'lighthouse' } }) })
    },
    tag: 'v1.2.0',
    expected: /^release_unusable .*signed as a release of "lighthouse", not of `beacon`/,
  },
  "wrong software: another service's release.json under our name": {
    act: async (it) => {
      await it.dist.add('v1.2.0', { service: 'lighthouse' })
      await it.publish()
    },
    tag: 'v1.2.0',
    expected: /^release_unusable .*(it is a release of `lighthouse`|it has no asset for)/,
  },
  'wrong software: of another platform': {
    act: async (it) => {
      await it.dist.add('v1.2.0', { os: 'plan9', arch: 'mips' })
      await it.publish()
    },
    tag: 'v1.2.0',
    expected: /^release_unusable .*it has no asset for/,
  },
  "wrong software: another release's release.json under a new tag": {
    act: async (it) => {
      const targets = await targetsOf(it.dist.dir, 'beacon')
      await mkdir(join(it.dist.dir, 'v1.2.0'))
      await writeFile(
        join(it.dist.dir, 'v1.2.0', 'release.json'),
        await readFile(join(it.dist.dir, 'v1.0.0', 'release.json')),
      )
      await it.publish({ targets: { ...targets, 'v1.2.0/release.json': targets['v1.0.0/release.json'] } })
    },
    tag: 'v1.2.0',
    expected: /^release_unusable .*release\.json is for v1\.0\.0, not for v1\.2\.0/,
  },
  'rollback of a target: a release that was yanked': {
    act: async (it) => {
      const custom = { 'v0.9.0': { yanked: 'lets anybody in' } }
      await it.publish({ targets: await targetsOf(it.dist.dir, 'beacon', custom) })
    },
    tag: 'v0.9.0',
    expected: /^yanked .*v0\.9\.0 was yanked: lets anybody in/,
  },
  'extraneous dependencies: targets outside of a release': {
    act: async (it) => {
      const targets = await targetsOf(it.dist.dir, 'beacon')
      await it.publish({ targets: { ...targets, 'left-pad.tgz': targets['v1.0.0/release.json'] } })
    },
    expected: /^metadata_invalid .*expected a path of the form vX\.Y\.Z\/name, got "left-pad\.tgz"/,
  },
  ...Object.fromEntries(
    ['../../etc/cron.d/x', 'v1.0.0/..', 'v1.0.0/../x', '/etc/passwd', 'v1.0.0/a\\b', 'v1.0.0/%2e%2e', 'v1.0.0/'].map(
      (path): [string, Attack] => [
        `a path that leaves the folder: ${path}`,
        {
          act: async (it) => {
            const targets = await targetsOf(it.dist.dir, 'beacon')
            await it.publish({ targets: { ...targets, [path]: targets['v1.0.0/release.json'] } })
          },
          expected: /^metadata_invalid .*expected a path of the form/,
        },
      ],
    ),
  ),
  'a path named __proto__': {
    act: async (it) => {
      const targets = await targetsOf(it.dist.dir, 'beacon')
      const own = JSON.parse(`{"__proto__":${JSON.stringify(targets['v1.0.0/release.json'])}}`) as object
      await it.publish({ targets: Object.assign(Object.create(null), targets, own) as Record<string, unknown> })
      const bytes = sealed(
        { ...(await it.read('timestamp.json')).signed, ...JSON.parse('{"__proto__":{"x":1}}') },
        it.keys.timestamp,
      )
      await writeFile(
        join(it.folder, 'timestamp.json'),
        bytes.toString().replace('"_type"', '"__proto__":{"x":1},"_type"'),
      )
    },
    expected: /^metadata_invalid /,
  },
  delegations: {
    act: (it) => it.publish({ edit: { targets: (signed) => void (signed['delegations'] = { keys: {}, roles: [] }) } }),
    expected: /^metadata_invalid .*expected no delegations/,
  },
  'a snapshot with more files than targets.json': {
    act: (it) =>
      it.publish({
        edit: {
          snapshot: (signed) => {
            const meta = signed['meta'] as Record<string, unknown>
            meta['other.json'] = meta['targets.json']
          },
        },
      }),
    expected: /^metadata_invalid .*expected `meta` to contain only targets\.json/,
  },
  'no sum of the snapshot': {
    act: (it) =>
      it.publish({
        edit: {
          timestamp: (signed) => {
            const meta = signed['meta'] as Record<string, Record<string, unknown>>
            delete meta['snapshot.json']?.['hashes']
          },
        },
      }),
    expected: /^metadata_invalid .*invalid entry for snapshot\.json/,
  },
  'a role of the root that nobody knows': {
    act: (it) =>
      it.publishRoot((root, keys) => {
        const roles = Object.entries(keys).map(([role, all]) => [
          role,
          { keyids: all.map(({ keyid }) => keyid), threshold: 1 },
        ])
        root['roles'] = { ...Object.fromEntries(roles), mirrors: { keyids: [], threshold: 1 } }
      }),
    expected: /^metadata_invalid .*expected exactly these roles/,
  },
  'an unknown scheme of a known key': {
    act: (it) =>
      it.publishRoot((root, keys) => {
        const all = Object.values(keys).flat()
        const odd = { ...all[0]?.key, scheme: 'none' }
        root['keys'] = { ...Object.fromEntries(all.map(({ keyid, key }) => [keyid, key])), ['cd'.repeat(32)]: odd }
      }),
    expected: /^metadata_invalid .*expected type and scheme ed25519, got "ed25519" and "none"/,
  },
  'consistent snapshots: targets of the snapshot that are not there': {
    act: async (it) => {
      await it.publish()
      await rm(join(it.folder, `${it.versions.targets}.targets.json`))
    },
    expected: /^metadata_missing .*targets\.json/,
  },
  'an unknown kind of key': {
    act: (it) =>
      it.publishRoot((root, keys) => {
        const all = Object.values(keys).flat()
        const odd = { keytype: 'rsa', scheme: 'rsassa-pss-sha256', keyval: { public: 'x' } }
        root['keys'] = { ...Object.fromEntries(all.map(({ keyid, key }) => [keyid, key])), ['cd'.repeat(32)]: odd }
      }),
    expected: /^metadata_invalid .*expected type and scheme ed25519, got "rsa"/,
  },
  'a threshold of none': {
    act: (it) =>
      it.publishRoot((root, keys) => {
        root['roles'] = Object.fromEntries(
          Object.entries(keys).map(([role, all]) => [role, { keyids: all.map(({ keyid }) => keyid), threshold: 0 }]),
        )
      }),
    expected: /^metadata_invalid .*expected a threshold from 1/,
  },
  'no consistent snapshots': {
    act: (it) => it.publishRoot((root) => void (root['consistent_snapshot'] = false)),
    expected: /^metadata_invalid .*expected `consistent_snapshot` to be true/,
  },
  'the root of another service of the same maintainer': {
    act: (it) => it.publishRoot((root) => void (root['x-baton-service'] = 'lighthouse')),
    expected: /^metadata_invalid .*root\.json is for "lighthouse", not for `beacon`/,
  },
  'canonical JSON: white space': {
    act: async (it) => {
      const text = await readFile(join(it.folder, 'timestamp.json'), 'utf8')
      await writeFile(join(it.folder, 'timestamp.json'), text.replace('"signed":', '"signed": '))
    },
    expected: /^metadata_invalid .*expected canonical JSON/,
  },
  'canonical JSON: a key twice': {
    act: async (it) => {
      const text = await readFile(join(it.folder, 'timestamp.json'), 'utf8')
      await writeFile(join(it.folder, 'timestamp.json'), text.replace('"version":', '"version":99,"version":'))
    },
    expected: /^metadata_invalid .*expected canonical JSON/,
  },
  'canonical JSON: another spelling of a number': {
    act: async (it) => {
      const text = await readFile(join(it.folder, 'timestamp.json'), 'utf8')
      await writeFile(join(it.folder, 'timestamp.json'), text.replace(/"version":(\d+)/, '"version":$1.0'))
    },
    expected: /^metadata_invalid .*expected canonical JSON/,
  },
  'a million brackets': {
    act: (it) => writeFile(join(it.folder, 'timestamp.json'), '['.repeat(16_000)),
    expected: /^metadata_invalid .*expected a JSON object/,
  },
  'a page of somebody else': {
    act: (it) => writeFile(join(it.folder, 'timestamp.json'), '<html>log in</html>'),
    expected: /^metadata_invalid .*expected a JSON object/,
  },
  'there is no timestamp any more': {
    act: (it) => rm(join(it.folder, 'timestamp.json')),
    expected: /^metadata_missing .*the feed has no timestamp\.json/,
  },
  'there are no metadata any more': {
    act: (it) => rm(it.folder, { recursive: true }),
    expected: /^metadata_missing /,
  },
  'endless data: a timestamp beyond its bound': {
    act: (it) => writeFile(join(it.folder, 'timestamp.json'), 'x'.repeat(17 * 1024)),
    expected: /^check_failed .*expected at most 16384 bytes/,
  },
  'endless data: a snapshot longer than the timestamp says': {
    act: async (it) => {
      await it.publish()
      const path = join(it.folder, `${it.versions.snapshot}.snapshot.json`)
      await writeFile(path, `${await readFile(path, 'utf8')} `)
    },
    expected: /^check_failed .*expected at most \d+ bytes, got \d+/,
  },
  'endless data: a release.json longer than signed': {
    act: async (it) => {
      const path = join(it.dist.dir, 'v1.0.0', 'release.json')
      await writeFile(path, `${await readFile(path, 'utf8')} `)
    },
    tag: 'v1.0.0',
    expected: /^release_unusable .*is larger than its signed size of \d+ bytes/,
  },
}

// without one key: genuine metadata, and the newest release kept back. A host that is told `up to date` stays where it is, unnoticed
const KEPT_BACK: Record<string, [(text: string) => string | null, RegExp]> = {
  missing: [() => null, /it has no release\.json$/],
  empty: [() => '', /sha256 of release\.json: expected \w+… \(as signed\)/],
  changed: [
    (text) => text.replace('"schema": 1', '"schema": 2'),
    /sha256 of release\.json: expected \w+… \(as signed\)/,
  ],
  longer: [(text) => `${text} `, /its release\.json is larger than its signed size of \d+ bytes$/],
}
for (const [how, [damage, why]] of Object.entries(KEPT_BACK)) {
  ATTACKS[`indefinite freeze: release.json of the newest release is ${how}`] = {
    act: async (it) => {
      await it.dist.add('v1.1.0')
      await it.publish()
      const path = join(it.dist.dir, 'v1.1.0', 'release.json')
      const damaged = damage(await readFile(path, 'utf8'))
      await (damaged === null ? rm(path) : writeFile(path, damaged))
    },
    expected: new RegExp(`^release_unusable .*v1\\.1\\.0 cannot be used: ${why.source}`),
  }
}

for (const [title, { act, expected, tag, setup, options }] of Object.entries(ATTACKS)) {
  test(`refused: ${title}`, async () => {
    await using it = await makeSignedDist(['v0.9.0', 'v1.0.0'], options)
    await setup?.(it)
    await using host = await makeHost(it.anchor, tag === 'v1.0.0' ? 'v0.9.0' : 'v1.0.0')
    assert.match(await host.update(it.dist.dir, tag === 'v1.0.0' ? 'v1.0.0' : null), /^(up_to_date|v1\.0\.0)$/)
    const before = JSON.parse(await host.known()) as { files: Record<string, string> }
    await act(it)
    const files = await readdir(host.state, { recursive: true })
    assert.match(await host.update(it.dist.dir, tag ?? null), expected)
    assert.equal(await readdir(host.state, { recursive: true }), files)
    const after = JSON.parse(await host.known()) as { files: Record<string, string> }
    if (/^metadata_|^signature_|^threshold_/.test(expected.source.slice(1))) {
      assert.equal({ ...after.files, root: '' }, { ...before.files, root: '' })
    }
    await assert.rejects(() => readFile(join(it.dist.dir, 'ran')), /ENOENT/) // nothing of the attacker's was run
    await assert.rejects(() => readFile(join(host.state, 'bin', '.beacon.partial')), /ENOENT/)
  })
}

test('a host that has seen nothing yet refuses the same: the root is all it needs', async () => {
  await using it = await makeSignedDist(['v1.0.0', 'v1.1.0'])
  await using host = await makeHost(it.anchor)
  await it.publish({ signers: { targets: [stranger], snapshot: [stranger], timestamp: [stranger] } })
  assert.match(await host.update(it.dist.dir), /^signature_missing /)
})

test('malicious mirror: two hosts with a mirror each, one of which serves last week: that host says what it has seen and is offered', async () => {
  await using it = await makeSignedDist(['v1.0.0'])
  const lastWeek = await keep(it, 'timestamp.json')
  await it.dist.add('v1.1.0')
  await it.publish()
  await using copy = await stateFolder()
  const mirror = join(copy.path, 'mirror')
  await cp(it.dist.dir, mirror, { recursive: true })
  await using one = await makeHost(it.anchor)
  await using other = await makeHost(it.anchor)
  assert.is(await one.update(it.dist.dir), 'v1.1.0')
  assert.is(await other.update(mirror), 'v1.1.0')
  await lastWeek()
  const { code, message } = { code: 'metadata_older', message: 'this host has seen version 2, but the feed offers 1' }
  assert.match(await one.update(it.dist.dir), new RegExp(`^${code} checking .*: timestamp\\.json: ${message}$`))
  assert.is(await other.update(mirror), 'v1.1.0')
})

test('two checks at once, of which the slower one was told an older state: the newer one is what is known', async () => {
  await using it = await makeSignedDist(['v1.0.0'])
  await using host = await makeHost(it.anchor)
  let release = (): void => {}
  const held = new Promise<void>((resolve) => (release = resolve))
  let asked = 0
  await using server = await listening(async (path, response) => {
    const bytes = await readFile(join(it.dist.dir, path)).catch(() => null)
    if (path.endsWith('timestamp.json') && ++asked === 1) await held // has the old one in its hands
    response.writeHead(bytes === null ? 404 : 200).end(bytes ?? '')
  })
  const slow = host.update(server.url)
  while (asked === 0) await new Promise((resolve) => setTimeout(resolve, 5))
  await it.dist.add('v1.1.0')
  await it.publish()
  assert.is(await host.update(server.url), 'v1.1.0')
  const known = await host.known()
  release()
  await slow
  assert.is(await host.known(), known)
})

test('endless data: an asset that never ends is refused, and not a byte more than is signed was written', async () => {
  await using it = await makeSignedDist(['v1.0.0'])
  await using host = await makeHost(it.anchor, 'v0.9.0')
  let before = Buffer.alloc(0)
  await using server = await listening(async (path, response) => {
    if (!/\.(zst|gz)$/.test(path)) return serve(it, path, response)
    response.write(Buffer.concat([before, await readFile(join(it.dist.dir, path))]))
    const timer = setInterval(() => response.write(Buffer.alloc(64 * 1024)), 1)
    response.on('close', () => clearInterval(timer))
  })
  const partial = join(host.state, 'bin', '.beacon.partial')
  const sizes: Promise<number>[] = []
  const look = () =>
    stat(partial)
      .then(({ size }) => size)
      .catch(() => 0)
  const timer = setInterval(() => void sizes.push(look()), 1)
  try {
    assert.match(await host.update(server.url), /^download_failed .*expected \d+ bytes, got more/)
    before = Buffer.alloc(1)
    assert.match(await host.update(server.url), /^(download|verify)_failed /)
  } finally {
    clearInterval(timer)
  }
  const most = Math.max(0, ...(await Promise.all(sizes)))
  assert.ok(most <= Buffer.byteLength(script('beacon', 'v1.0.0')), `${most} bytes`)
})

for (const [role, name] of [
  ['root', '2.root.json'],
  ['timestamp', 'timestamp.json'],
  ['snapshot', '2.snapshot.json'],
  ['targets', '2.targets.json'],
  ['a release', 'release.json'],
] as const) {
  test(`endless data: ${role} that never ends is read no further than its bound`, async () => {
    await using it = await makeSignedDist(['v1.0.0'])
    await using host = await makeHost(it.anchor, 'v0.9.0')
    await it.publish()
    let sent = 0
    await using server = await listening((path, response) => {
      if (!path.endsWith(name)) return serve(it, path, response)
      const chunk = Buffer.alloc(64 * 1024, 0x20)
      const write = (): void => {
        while (!response.destroyed && sent < 64 * 1024 * 1024) {
          sent += chunk.length
          if (!response.write(chunk)) return void response.once('drain', write)
        }
      }
      write()
    })
    assert.match(
      await host.update(server.url),
      /^(check_failed .*the response is larger than \d+ bytes|release_unusable .*is larger than its signed size)/,
    )
    assert.ok(sent < 16 * 1024 * 1024, `sent ${sent}`)
  })
}

for (const name of ['2.root.json', 'timestamp.json', '2.snapshot.json', '2.targets.json', 'release.json']) {
  test(`slow retrieval: a ${name} that trickles is given up after the deadline`, async () => {
    await using it = await makeSignedDist(['v1.0.0'])
    await using host = await makeHost(it.anchor)
    await it.publish()
    await using server = await listening((path, response) => {
      if (!path.endsWith(name)) return serve(it, path, response)
      const timer = setInterval(() => response.write(' '), 50)
      response.on('close', () => clearInterval(timer))
    })
    await using feed = host.feed(server.url, { timeoutMs: 300 })
    const error = await assert.rejects(() => feed.latest(() => false), assert.withCode('check_failed'))
    assert.match(error.message, /no answer within 0\.3 s/)
  })
}

test('a timestamp that is just being replaced is waited for', async () => {
  await using it = await makeSignedDist(['v1.0.0', 'v1.1.0'])
  await using host = await makeHost(it.anchor)
  let asked = 0
  await using server = await listening((path, response) => {
    if (path.endsWith('timestamp.json') && ++asked === 1) return void response.writeHead(404).end()
    return serve(it, path, response)
  })
  await using feed = host.feed(server.url, { patienceMs: 10_000 })
  assert.is((await feed.latest(() => false)).release?.tag, 'v1.1.0')
  assert.is(asked, 2)
})

// ---- life ------------------------------------------------------------------------------------------------------------

test('a host that was off for a year walks every root in between', async () => {
  await using it = await makeSignedDist(['v1.0.0', 'v1.1.0'])
  await using host = await makeHost(it.anchor)
  for (let turn = 0; turn < 20; turn++) {
    await it.publishRoot((_root, keys) => {
      if (turn % 2 === 0) keys.root = [...keys.root.slice(1), makeSigner()]
      else keys.timestamp = [makeSigner()]
    })
  }
  await it.publish()
  assert.is(await host.update(it.dist.dir), 'v1.1.0')
  assert.is((await host.feed(it.dist.dir).trust()).metadata[0]?.version, 21)
})

test('the walk is bounded for each check, and goes on with the next one', async () => {
  await using it = await makeSignedDist(['v1.0.0', 'v1.1.0'])
  await using host = await makeHost(it.anchor)
  for (let turn = 0; turn < 70; turn++) await it.publishRoot((_root, keys) => void (keys.timestamp = [makeSigner()]))
  await it.publish()
  assert.match(await host.update(it.dist.dir), /^(root_unreachable|signature_missing) /)
  assert.is(await host.update(it.dist.dir), 'v1.1.0')
})

test('a chain with a root missing says that it is broken', async () => {
  await using it = await makeSignedDist(['v1.0.0', 'v1.1.0'])
  await using host = await makeHost(it.anchor)
  await it.publishRoot((_root, keys) => void (keys.timestamp = [makeSigner()]))
  await it.publishRoot(() => {})
  await it.publish()
  await rm(join(it.folder, '2.root.json'))
  assert.match(await host.update(it.dist.dir), /^root_unreachable .*has 3\.root\.json but no 2\.root\.json/)
})

test('fast-forward: after the stolen timestamp and snapshot keys are replaced, lower versions are believed again', async () => {
  await using it = await makeSignedDist(['v1.0.0', 'v1.1.0'])
  await using host = await makeHost(it.anchor)
  await it.publish({ versions: { timestamp: 2_000_000_000, snapshot: 2_000_000_000 } }) // the thief
  assert.is(await host.update(it.dist.dir), 'v1.1.0')
  await it.publish({ versions: { timestamp: 3, snapshot: 3 } })
  assert.match(await host.update(it.dist.dir), /^metadata_older /)
  await it.publishRoot((_root, keys) => {
    keys.timestamp = [makeSigner()]
    keys.snapshot = [makeSigner()]
  })
  await it.publish({ versions: { timestamp: 4, snapshot: 4 } })
  assert.is(await host.update(it.dist.dir), 'v1.1.0')
})

test('a stolen key of targets ends with its replacement, on hosts that have seen what it signed too', async () => {
  await using it = await makeSignedDist(['v1.0.0'])
  await using host = await makeHost(it.anchor)
  const stolen = it.keys.targets
  await it.publishRoot((_root, keys) => void (keys.targets = [makeSigner()]))
  await it.publish()
  assert.is(await host.update(it.dist.dir), 'up_to_date')
  await plant(it)
  await it.publish({ signers: { targets: stolen } })
  assert.match(await host.update(it.dist.dir), /^signature_missing .*targets\.json is not signed by any of the keys/)
})

test('an executable with a newer root goes on from its own; one that is older, from what this host knows', async () => {
  await using it = await makeSignedDist(['v1.0.0', 'v1.1.0'])
  await it.publishRoot((_root, keys) => void (keys.timestamp = [makeSigner()]))
  await it.publish()
  const second: Anchor = { root: await readFile(join(it.folder, '2.root.json'), 'utf8'), builtAt: null }
  await using host = await makeHost(it.anchor)
  assert.is(await host.update(it.dist.dir), 'v1.1.0')
  await rename(join(it.folder, '2.root.json'), join(it.folder, 'gone'))
  await using newer = labFeed(it.dist.dir, { trust: second, stateDirectory: host.state })
  assert.is((await newer.latest(() => false)).release?.tag, 'v1.1.0')
  await using older = labFeed(it.dist.dir, { trust: it.anchor, stateDirectory: host.state })
  assert.is((await older.latest(() => false)).release?.tag, 'v1.1.0')
})

test('a damaged file of what is known is as none: the compiled root is enough', async () => {
  await using it = await makeSignedDist(['v1.0.0', 'v1.1.0'])
  await using host = await makeHost(it.anchor)
  await host.update(it.dist.dir)
  await writeFile(join(host.state, 'update', 'trust.json'), '{"format":1,"chain":["')
  assert.is(await host.update(it.dist.dir), 'v1.1.0')
})

test('a clock that is before the build is wrong, and no expiry is judged by it', async () => {
  await using it = await makeSignedDist(['v1.0.0', 'v1.1.0'])
  await using host = await makeHost({ ...it.anchor, builtAt: '2098-01-01T00:00:00.000Z' })
  assert.match(await host.update(it.dist.dir), /^clock_wrong .*built at 2098-01-01/)
})

test('what expires within a third of its life is warned of, and what has expired is said', async () => {
  await using it = await makeSignedDist(['v1.0.0'])
  await using host = await makeHost(it.anchor)
  const soon = new Date(Date.now() + 5 * 86_400_000).toISOString().replace(/\.\d+Z$/, 'Z')
  await it.publish({ edit: { snapshot: (signed) => void (signed.expires = soon) } })
  await host.update(it.dist.dir)
  assert.match(
    (await host.feed(it.dist.dir).trust()).warning?.message ?? '',
    /^snapshot\.json expires on 20\S+ \(days left: [45]\)/,
  )
})

test('a release is yanked: the next lower one is the latest, and it is said why', async () => {
  await using it = await makeSignedDist(['v1.0.0', 'v1.1.0', 'v1.2.0'])
  await it.publish({ targets: await targetsOf(it.dist.dir, 'beacon', { 'v1.2.0': { yanked: 'eats data' } }) })
  await using host = await makeHost(it.anchor)
  const passed: string[] = []
  await using feed = host.feed(it.dist.dir, { onPassedOver: (tag, why) => void passed.push(`${tag}: ${why}`) })
  assert.is((await feed.latest(() => false)).release?.tag, 'v1.1.0')
  assert.equal(passed, ['v1.2.0: it was yanked: eats data'])
  assert.equal((await feed.trust()).yanked, [{ tag: 'v1.2.0', why: 'eats data' }])
})

test('notes are those that were signed, and an address that nobody has signed is not shown', async () => {
  await using it = await makeSignedDist(['v1.0.0', 'v1.1.0', 'v1.2.0'])
  await using server = await releaseServer({ dir: it.dist.dir })
  await using host = await makeHost(it.anchor)
  for (const setting of [it.dist.dir, server.staticUrl, server.feed]) {
    await using feed = host.feed(setting)
    const release = (await feed.latest(() => false)).release ?? (assert.unreachable() as never)
    assert.equal([release.notes, release.url], ['What is new in v1.2.0', null])
    const between = await feed.notes({ after: 'v1.0.0', before: 'v1.2.0' })
    assert.equal(
      between.map(({ tag, notes, url }) => [tag, notes, url]),
      [['v1.1.0', 'What is new in v1.1.0', null]],
    )
  }
})

test('the image of a release is the one that was signed', async () => {
  const image = { repository: 'ghcr.io/acme/beacon', digest: `sha256:${'ab'.repeat(32)}` }
  await using it = await makeSignedDist(['v1.1.0'])
  await it.publish({ targets: await targetsOf(it.dist.dir, 'beacon', { 'v1.1.0': { image } }) })
  await using host = await makeHost(it.anchor)
  assert.equal((await host.feed(it.dist.dir).byTag('v1.1.0')).image, image)
})

test('a build refuses a root that no host could go on from', async () => {
  await using it = await makeSignedDist(['v1.0.0'])
  const now = new Date()
  const { root } = it.anchor
  assert.equal(await faultsOfRoot(root, 'beacon', now), [])
  assert.match(
    (await faultsOfRoot(root, 'lighthouse', now)).join(),
    /expected a root for `lighthouse`, got one for `beacon`/,
  )
  assert.match((await faultsOfRoot(root, 'beacon', new Date(FAR))).join(), /it expired on 2099/)
  assert.match((await faultsOfRoot('{}', 'beacon', now)).join(), /expected the members `signatures` and `signed`/)
  const { signed } = JSON.parse(root) as { signed: Signed }
  assert.match(
    (await faultsOfRoot(String(sealed(signed, [stranger])), 'beacon', now)).join(),
    /the root does not list key \w+… for this role/,
  )
  const [one] = it.keys.root
  if (one !== undefined)
    assert.match(
      (await faultsOfRoot(String(sealed(signed, [one])), 'beacon', now)).join(),
      /is not signed by its own keys/,
    )
})

test.run()

type Serve = (path: string, response: ServerResponse) => unknown

async function listening(answer: Serve): Promise<{ url: string } & AsyncDisposable> {
  const server = createServer((request, response) => void answer(request.url ?? '/', response))
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    [Symbol.asyncDispose]: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

async function serve(it: SignedDist, path: string, response: ServerResponse): Promise<void> {
  const bytes = await readFile(join(it.dist.dir, path)).catch(() => null)
  response.writeHead(bytes === null ? 404 : 200).end(bytes ?? '')
}
