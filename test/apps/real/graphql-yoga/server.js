import { appendFileSync, existsSync, readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { createPubSub, createSchema, createYoga } from 'graphql-yoga'

const file = join(process.env.STATE_DIRECTORY ?? '.', 'notes.txt')
const notes = existsSync(file) ? readFileSync(file, 'utf8').split('\n').slice(0, -1) : []
const pubSub = createPubSub()

const yoga = createYoga({
  schema: createSchema({
    typeDefs: /* GraphQL */ `
      type Query {
        notes: [String!]!
      }
      type Mutation {
        add(note: String!): Int!
      }
      type Subscription {
        added: String!
      }
    `,
    resolvers: {
      Query: { notes: () => notes },
      Mutation: {
        add: (_, { note }) => {
          appendFileSync(file, `${note}\n`)
          pubSub.publish('added', note)
          return notes.push(note)
        },
      },
      Subscription: {
        added: { subscribe: () => pubSub.subscribe('added'), resolve: (note) => note },
      },
    },
  }),
})

const server = createServer(yoga)
server.listen(process.env.PORT ?? 4000, process.env.HOST)
