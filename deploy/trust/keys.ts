// Signing keys: Ed25519, each in a separate file that only its owner can read, encrypted with a passphrase.
// Must hold: a secret key is never on the disk in the clear. Neither a secret key nor a passphrase is ever in an argument, a log
// or an error text.

import type { KeyObject } from 'node:crypto'
import { createCipheriv, createDecipheriv, createPrivateKey, createPublicKey, generateKeyPairSync } from 'node:crypto'
import { randomBytes, scryptSync, sign } from 'node:crypto'
import { mkdir, open, readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { canonicalize, type Key, keyIdOf } from '../../agent/publish.ts'
import { BatonError, reasonOf } from '../../agent/words.ts'

/** A key file: the public part in the clear, the secret part encrypted. Bytes in hex. */
export interface KeyFile {
  format: 1
  /** name for people, such as `root-1` */
  name: string
  keyid: string
  public: string
  scrypt: { N: number; r: number; p: number; salt: string }
  iv: string
  tag: string
  secret: string
}

export interface Signer {
  keyid: string
  key: Key
  /** lower-case hex */
  sign(message: Buffer): string
}

/** scrypt's cost N: 128 MiB and some tenths of a second for each guess */
export const WORK = 2 ** 17
const FILE_MAX_BYTES = 4 * 1024

/** A new key pair, in memory only. */
export function makeSigner(): Signer & { secret: KeyObject } {
  const { privateKey } = generateKeyPairSync('ed25519')
  return { ...signerOf(privateKey), secret: privateKey }
}

/** A new key pair and its encrypted file. Keys of one passphrase may share the salt: scrypt then runs once for all of them. */
export function makeKey(
  name: string,
  passphrase: string,
  salt: Buffer,
  work = WORK,
): { file: KeyFile; signer: Signer } {
  const scrypt = { N: work, r: 8, p: 1 }
  const { secret: privateKey, ...signer } = makeSigner()
  const { keyid } = signer
  const iv = randomBytes(12)
  const cipher = createCipheriv('aes-256-gcm', derive(passphrase, salt, scrypt), iv).setAAD(Buffer.from(keyid))
  const secret = Buffer.concat([cipher.update(privateKey.export({ format: 'der', type: 'pkcs8' })), cipher.final()])
  const file: KeyFile = {
    format: 1,
    name,
    keyid,
    public: signer.key.keyval.public,
    scrypt: { ...scrypt, salt: salt.toString('hex') },
    iv: iv.toString('hex'),
    tag: cipher.getAuthTag().toString('hex'),
    secret: secret.toString('hex'),
  }
  return { file, signer }
}

/** Throws BatonError refused if the passphrase is wrong or the file was changed. */
export function unlock(file: KeyFile, passphrase: string): Signer {
  const { name, keyid, scrypt, iv, tag, secret } = file
  try {
    const secretKey = derive(passphrase, Buffer.from(scrypt.salt, 'hex'), scrypt)
    const decipher = createDecipheriv('aes-256-gcm', secretKey, Buffer.from(iv, 'hex'))
    decipher.setAAD(Buffer.from(keyid)).setAuthTag(Buffer.from(tag, 'hex'))
    const der = Buffer.concat([decipher.update(Buffer.from(secret, 'hex')), decipher.final()])
    const privateKey = createPrivateKey({ key: der, format: 'der', type: 'pkcs8' })
    const signer = signerOf(privateKey)
    if (signer.keyid !== keyid) throw new Error('it is a different key')
    return signer
  } catch {
    throw new BatonError(
      'refused',
      `the key \`${name}\` (${keyid.slice(0, 12)}…) cannot be decrypted with this passphrase`,
    )
  }
}

/** New key files. `undo`: removes them again, as nothing was signed that names them. */
export interface WrittenKeys {
  paths: string[]
  undo(): Promise<void>
}

/** Writes new key files, and they are on the disk then. Never replaces a file: throws BatonError refused, and none of them is left. */
export async function writeKeys(folder: string, files: readonly KeyFile[]): Promise<WrittenKeys> {
  await mkdir(folder, { recursive: true, mode: 0o700 })
  const paths: string[] = []
  const undo = async (): Promise<void> => {
    for (const path of paths) await rm(path, { force: true })
  }
  for (const file of files) {
    const path = join(folder, `${file.name}.json`)
    try {
      await using handle = await open(path, 'wx', 0o600)
      paths.push(path) // from here on it is this run's own
      await handle.writeFile(`${JSON.stringify(file, null, 2)}\n`)
      await handle.sync()
    } catch (error) {
      await undo()
      throw new BatonError('refused', `writing the key ${path}: ${reasonOf(error)}`, { cause: error })
    }
  }
  await using directory = await open(folder, 'r')
  await directory.sync()
  return { paths, undo }
}

/** The keys in these folders, and those in `text`: key files one after the other, as in a secret of CI. */
export async function readKeys(folders: readonly string[], text: string): Promise<KeyFile[]> {
  const found: KeyFile[] = []
  for (const folder of folders) {
    const names = await readdir(folder).catch(() => [])
    for (const name of names.filter((one) => one.endsWith('.json')).toSorted()) {
      const content = await readFile(join(folder, name), 'utf8')
      found.push(parseKeyFile(content, join(folder, name)))
    }
  }
  for (const [at, one] of text.split(/(?<=\})\s*(?=\{\s*"format")/).entries()) {
    if (one.trim() !== '') found.push(parseKeyFile(one, `key ${at + 1} in BATON_TRUST_KEYS`))
  }
  return found
}

/** The next free name of a role's keys. */
export function nextName(role: string, files: readonly KeyFile[]): string {
  const numbers = files.map(({ name }) => Number(new RegExp(`^${role}-(\\d{1,4})$`).exec(name)?.[1] ?? 0))
  return `${role}-${Math.max(0, ...numbers) + 1}`
}

/** No error text quotes the file. */
function parseKeyFile(text: string, where: string): KeyFile {
  const refused = (why: string): BatonError =>
    new BatonError('refused', `${where}: expected a key file from \`trust init\`, ${why}`)
  if (text.length > FILE_MAX_BYTES) throw refused('got a file that is too large')
  let file: KeyFile | null = null
  try {
    file = JSON.parse(text) as KeyFile
    const { N, r, p } = file.scrypt
    const hex = [file.keyid, file.public, file.scrypt.salt, file.iv, file.tag, file.secret]
    const whole = file.format === 1 && hex.every((one) => typeof one === 'string' && /^[0-9a-f]+$/.test(one))
    if (!whole || !/^[a-z0-9-]{1,40}$/.test(file.name) || !(N <= 2 ** 20 && r <= 16 && p <= 4)) file = null
  } catch {
    file = null // no JSON, or not of this shape
  }
  if (file === null) throw refused('got something else')
  return file
}

function signerOf(privateKey: KeyObject): Signer {
  const raw = createPublicKey(privateKey).export({ format: 'der', type: 'spki' }).subarray(-32).toString('hex')
  const key: Key = { keytype: 'ed25519', scheme: 'ed25519', keyval: { public: raw } }
  return {
    keyid: keyIdOf(key, canonicalize),
    key,
    sign: (message) => sign(null, message, privateKey).toString('hex'),
  }
}

let last: { of: string; secret: Buffer } | null = null

function derive(passphrase: string, salt: Buffer, { N, r, p }: { N: number; r: number; p: number }): Buffer {
  const of = JSON.stringify([passphrase, salt.toString('hex'), N, r, p])
  if (last?.of !== of) {
    last = { of, secret: scryptSync(passphrase.normalize('NFKC'), salt, 32, { N, r, p, maxmem: 256 * N * r }) }
  }
  return last.secret
}
