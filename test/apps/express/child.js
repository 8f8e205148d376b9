process.send({ child: true })
process.disconnect()
