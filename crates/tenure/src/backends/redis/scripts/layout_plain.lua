-- The string lock of SET NX PX: redis-py, redsync, node-redlock and others. Owners have any form.
local function mine(key, owner) return redis.call('GET', key) == owner end
local function give(key, owner) return mine(key, owner) and redis.call('DEL', key) == 1 end
