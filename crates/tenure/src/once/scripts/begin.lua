-- KEYS: record. ARGV: token, ms to keep it, whether to repeat what is unfinished.
-- {'yours', earlier} | {'done', token, result} | {'unfinished', token} | {'stale', token}
local mine = ARGV[1]
local token = token_of(KEYS[1])
if token then
  local result = redis.call('HGET', KEYS[1], 'result')
  if result then return {'done', token, result} end
  if token == mine then return {'yours', redis.call('HGET', KEYS[1], 'earlier'), false} end
  if token > mine then return {'stale', token, false} end
  if ARGV[3] == '0' then return {'unfinished', token, false} end
  redis.call('HSET', KEYS[1], 'earlier', token)
end
put(KEYS[1], mine, ARGV[2])
return {'yours', token, false}
