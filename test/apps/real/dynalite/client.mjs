// Clients of dynalite by fetch, in the words of DynamoDB: each adds one to a counter of its own and puts an item, without a second try.
// Until stdin ends; then the items are got once more, and one line of JSON is printed.
// lost: requests without their right answer. doubled: additions beyond those that were sent. missing: acknowledged items or additions
// that are not there.

import { setTimeout as sleep } from 'node:timers/promises'
import { tell, work } from './working.mjs'

const CLIENTS = 4
const TableName = 'things'
const url = `http://127.0.0.1:${process.env.PORT}/`
const acknowledged = []
const [sent, added] = [Array(CLIENTS).fill(0), Array(CLIENTS).fill(0)]

await ask('CreateTable', {
  TableName,
  AttributeDefinitions: [{ AttributeName: 'id', AttributeType: 'S' }],
  KeySchema: [{ AttributeName: 'id', KeyType: 'HASH' }],
  ProvisionedThroughput: { ReadCapacityUnits: 5, WriteCapacityUnits: 5 },
})
while ((await ask('DescribeTable', { TableName })).Table.TableStatus !== 'ACTIVE') await sleep(100)

const lost = await work({ clients: CLIENTS, pauseMs: 80 }, async (client, number) => {
  sent[client]++
  await ask('UpdateItem', {
    TableName,
    Key: { id: { S: `counter-${client}` } },
    UpdateExpression: 'ADD times :one',
    ExpressionAttributeValues: { ':one': { N: '1' } },
  })
  added[client]++
  const id = `${client}-${number}`
  await ask('PutItem', { TableName, Item: { id: { S: id } } })
  acknowledged.push(id)
})
const items = await Promise.all(acknowledged.map((id) => get(id)))
const counts = await Promise.all(sent.map(async (_, client) => Number((await get(`counter-${client}`))?.times.N)))
const sum = (numbers) => numbers.reduce((all, one) => all + Math.max(one, 0), 0)
tell({
  done: acknowledged.length,
  lost,
  doubled: sum(counts.map((count, client) => count - sent[client])),
  missing: items.filter((item) => item === undefined).length + sum(counts.map((count, at) => added[at] - count)),
})

async function get(id) {
  return (await ask('GetItem', { TableName, Key: { id: { S: id } }, ConsistentRead: true })).Item
}

/** The signature must be there; nobody looks whether it is right. */
async function ask(what, body) {
  const credential = 'Credential=a/20260101/us-east-1/dynamodb/aws4_request'
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      'content-type': 'application/x-amz-json-1.0',
      'x-amz-target': `DynamoDB_20120810.${what}`,
      'x-amz-date': '20260101T000000Z',
      authorization: `AWS4-HMAC-SHA256 ${credential}, SignedHeaders=host, Signature=a`,
    },
    body: JSON.stringify(body),
  })
  const said = await response.text()
  if (!response.ok) throw new Error(`${response.status} of ${what}: ${said.slice(0, 200)}`)
  return JSON.parse(said)
}
