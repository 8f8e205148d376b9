import '@actual-app/sync-server/build/bin/actual-server.js'
