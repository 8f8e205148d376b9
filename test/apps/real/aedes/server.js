import { createServer as createHttpServer } from 'node:http'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { Aedes } from 'aedes'
import LevelPersistence from 'aedes-persistence-level/asyncPersistence.js'
import { Level } from 'level'

const db = new Level(join(process.env.STATE_DIRECTORY ?? '.', 'broker'))
const aedes = await Aedes.createBroker({ persistence: new LevelPersistence(db) })

createServer(aedes.handle).listen(process.env.MQTT_PORT ?? 1883, process.env.HOST)

createHttpServer((request, response) => response.end(`${aedes.connectedClients} clients\n`)).listen(
  process.env.PORT ?? 8080,
  process.env.HOST,
)
