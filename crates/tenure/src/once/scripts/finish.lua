-- KEYS: record. ARGV: token, ms to keep it, result.
-- {'recorded'} | {'stale', token}
local mine = ARGV[1]
local token = token_of(KEYS[1])
if token and token > mine then return {'stale', token, false} end
if token == mine and redis.call('HEXISTS', KEYS[1], 'result') == 1 then return {'recorded', false, false} end
if token and token ~= mine then redis.call('HDEL', KEYS[1], 'earlier') end
redis.call('HSET', KEYS[1], 'result', ARGV[3])
put(KEYS[1], mine, ARGV[2])
return {'recorded', false, false}
