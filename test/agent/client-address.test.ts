// By which address a request is counted.

import { clientAddresses } from '../../agent/http/client-address.ts'
import { trustedProxyFault } from '../../agent/http/trusted-proxy.ts'
import { is, match } from '../assert.ts'
import { suite } from '../suite.ts'

const test = suite('client address')
const PROXY = { from: ['127.0.0.1', '10.0.0.0/8', 'unix', 'fd00::/8'], header: 'X-Forwarded-For' }

const asked = (remoteAddress: string | undefined, header: string, name = 'x-forwarded-for') => ({
  headers: { [name]: header },
  socket: { remoteAddress },
})

test('without the setting a header says nothing', () => {
  is(clientAddresses(null)(asked('192.0.2.1', '198.51.100.7')), '192.0.2.1')
  is(clientAddresses(null)(asked('::ffff:192.0.2.1', '198.51.100.7')), '192.0.2.1')
  is(clientAddresses(null)(asked(undefined, '198.51.100.7')), 'unix')
})

test('counts IPv6 by its /64, however it is written', () => {
  const address = clientAddresses(null)
  is(address(asked('2001:db8:1:2:3:4:5:6', '')), '2001:db8:1:2::/64')
  is(address(asked('2001:db8:1:2::9', '')), '2001:db8:1:2::/64')
  is(address(asked('2001:0db8:0001:0002:ffff::', '')), '2001:db8:1:2::/64')
  is(address(asked('fe80::1%eth0', '')), 'fe80:0:0:0::/64')
  is(address(asked('::1', '')), '0:0:0:0::/64')
})

test('believes a trusted proxy, the nearest name first, and nobody whom it does not name', () => {
  const address = clientAddresses(PROXY)
  is(address(asked('127.0.0.1', '198.51.100.7')), '198.51.100.7')
  is(address(asked('127.0.0.1', '6.6.6.6, 198.51.100.7')), '198.51.100.7', 'what the client wrote before it is its own')
  is(address(asked('127.0.0.1', '198.51.100.7, 10.1.2.3')), '198.51.100.7', 'two proxies in a row')
  is(address(asked(undefined, '198.51.100.7:4711')), '198.51.100.7', 'a proxy on the unix socket')
  is(address(asked('::ffff:10.9.9.9', '[2001:db8::1]:80')), '2001:db8:0:0::/64')
  is(address(asked('192.0.2.1', '198.51.100.7')), '192.0.2.1', 'a stranger')
  for (const odd of ['', ',', 'unknown', '1.2.3', 'a'.repeat(10_000), ',,,', 'for=1.2.3.4'])
    is(address(asked('127.0.0.1', odd)), '127.0.0.1', odd.slice(0, 20))
})

test('a client that writes a long header of its own does not hide what its proxy has added', () => {
  const address = clientAddresses(PROXY)
  for (const padding of ['6.6.6.6, '.repeat(600), `${'a'.repeat(9000)},`, '10.1.2.3, '.repeat(600)]) {
    is(address(asked('127.0.0.1', `${padding}198.51.100.7`)), '198.51.100.7')
  }
})

test('reads the header of RFC 7239', () => {
  const address = clientAddresses({ from: ['127.0.0.1'], header: 'Forwarded' })
  const of = (text: string) => address(asked('127.0.0.1', text, 'forwarded'))
  is(of('for=192.0.2.60;proto=http;by=203.0.113.43'), '192.0.2.60')
  is(of('for=6.6.6.6, For="[2001:db8:cafe::17]:4711"'), '2001:db8:cafe:0::/64')
  is(of('for=_hidden'), '127.0.0.1')
})

test('says what is wrong with the setting', () => {
  is(trustedProxyFault(PROXY), null)
  match(trustedProxyFault({ from: [], header: 'x' }) ?? '', /1 to 64/)
  match(trustedProxyFault({ from: ['10.0.0.0/33'], header: 'x' }) ?? '', /"10\.0\.0\.0\/33"/)
  match(trustedProxyFault({ from: ['proxy.test'], header: 'x' }) ?? '', /got "proxy\.test"/)
  match(trustedProxyFault({ from: ['127.0.0.1'], header: 'x: y' }) ?? '', /expected a header name/)
  match(trustedProxyFault({} as never) ?? '', /expected a header name/)
})

test.run()
