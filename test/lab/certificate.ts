// Makes a certificate for a TLS server on this machine, so that the repository holds no key and no certificate that can expire.
// X.509 v3 by hand (RFC 5280, 4.1): ECDSA with P-256, self-signed, valid for a day.

import { generateKeyPairSync, randomBytes, sign } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { isIP } from 'node:net'
import { join } from 'node:path'

export interface Certificate {
  /** both PEM, for `createServer` of node:https; a client trusts `cert` */
  key: string
  cert: string
}

export function makeCertificate(names: string[] = ['localhost', '127.0.0.1']): Certificate {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' })
  const algorithm = der(SEQUENCE, oid(ECDSA_WITH_SHA256))
  const name = der(SEQUENCE, der(SET, der(SEQUENCE, oid(COMMON_NAME), der(UTF8_STRING, Buffer.from('baton test')))))
  const now = Date.now()
  const tbs = der(
    SEQUENCE,
    der(explicit(0), der(INTEGER, Buffer.from([2]))),
    der(INTEGER, Buffer.concat([Buffer.from([1]), randomBytes(8)])),
    algorithm,
    name,
    der(SEQUENCE, time(now - 3_600_000), time(now + 86_400_000)),
    name,
    publicKey.export({ type: 'spki', format: 'der' }),
    der(
      explicit(3),
      der(
        SEQUENCE,
        der(SEQUENCE, oid(BASIC_CONSTRAINTS), TRUE, der(OCTET_STRING, der(SEQUENCE, TRUE))),
        der(SEQUENCE, oid(SUBJECT_ALT_NAME), der(OCTET_STRING, der(SEQUENCE, ...names.map(generalName)))),
      ),
    ),
  )
  const signature = sign('sha256', tbs, privateKey)
  const whole = der(SEQUENCE, tbs, algorithm, der(BIT_STRING, Buffer.from([0]), signature))
  const lines = whole.toString('base64').replaceAll(/.{64}/g, '$&\n').trimEnd()
  return {
    key: privateKey.export({ type: 'pkcs8', format: 'pem' }),
    cert: `-----BEGIN CERTIFICATE-----\n${lines}\n-----END CERTIFICATE-----\n`,
  }
}

/** Writes one to `folder`: the paths are what the `tls` of a listener names. */
export async function writeCertificate(folder: string): Promise<Certificate> {
  const { key, cert } = makeCertificate()
  const paths = { key: join(folder, 'key.pem'), cert: join(folder, 'cert.pem') }
  await writeFile(paths.key, key, { mode: 0o600 })
  await writeFile(paths.cert, cert)
  return paths
}

const [INTEGER, BIT_STRING, OCTET_STRING, OBJECT_IDENTIFIER, UTF8_STRING, UTC_TIME] = [2, 3, 4, 6, 12, 23]
const [SEQUENCE, SET] = [0x30, 0x31]
const TRUE = Buffer.from([1, 1, 0xff])
const ECDSA_WITH_SHA256 = '1.2.840.10045.4.3.2'
const COMMON_NAME = '2.5.4.3'
const BASIC_CONSTRAINTS = '2.5.29.19'
const SUBJECT_ALT_NAME = '2.5.29.17'

function explicit(number: number): number {
  return 0xa0 | number
}

function generalName(name: string): Buffer {
  if (isIP(name) === 4) return der(0x87, Buffer.from(name.split('.').map(Number)))
  return der(0x82, Buffer.from(name))
}

function der(tag: number, ...parts: Buffer[]): Buffer {
  const content = Buffer.concat(parts)
  const { length } = content
  const size = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 0xff]
  return Buffer.concat([Buffer.from([tag, ...size]), content])
}

function oid(dotted: string): Buffer {
  const [first = 0, second = 0, ...rest] = dotted.split('.').map(Number)
  const bytes = rest.flatMap((number) => {
    const groups = [number & 0x7f]
    for (let left = number >> 7; left > 0; left >>= 7) groups.unshift((left & 0x7f) | 0x80)
    return groups
  })
  return der(OBJECT_IDENTIFIER, Buffer.from([first * 40 + second, ...bytes]))
}

function time(ms: number): Buffer {
  return der(UTC_TIME, Buffer.from(`${new Date(ms).toISOString().replaceAll(/[-:T]/g, '').slice(2, 14)}Z`))
}
