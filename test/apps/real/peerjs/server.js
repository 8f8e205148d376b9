const express = require('express')
const { ExpressPeerServer } = require('peer')
const app = express()

const server = app.listen(process.env.PORT ?? 9000, process.env.HOST)
const peerServer = ExpressPeerServer(server, { path: '/' })
app.use('/', peerServer)
