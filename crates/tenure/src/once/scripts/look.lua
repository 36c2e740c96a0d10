-- KEYS: record.
-- Nothing | {token, earlier, result, age in ms}
local token = token_of(KEYS[1])
if not token then return false end
local age = math.max(now() - tonumber(redis.call('HGET', KEYS[1], 'changed') or 0), 0)
return {token, redis.call('HGET', KEYS[1], 'earlier'), redis.call('HGET', KEYS[1], 'result'), age}
