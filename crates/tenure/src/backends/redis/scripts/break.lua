-- KEYS: lock, token, note. ARGV: channel, idle time of tokens, how to publish.
-- {new fence, what was there as inspect.lua tells it} or nothing if nobody holds it.
local left = redis.call('PTTL', KEYS[1])
if left == -2 then return false end
if left == -1 then return redis.error_reply('FOREIGN the key is not a lock of this layout') end
local was = {left, redis.call('GET', KEYS[2]), redis.call('GET', KEYS[3]), {}, false, false, {}}
for _, holder in ipairs(holders(KEYS[1])) do was[7][#was[7] + 1] = {holder, left, 'lock', false} end
local fence = next_token(KEYS[2], 1, tonumber(ARGV[2]))
if type(fence) == 'table' then return fence end
redis.call('DEL', KEYS[1], KEYS[3])
tell(ARGV[3], ARGV[1])
return {fence, was}
