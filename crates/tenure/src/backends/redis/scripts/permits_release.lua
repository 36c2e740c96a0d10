-- KEYS: number, held, owners. ARGV: owner, channel, how to publish, ids...
-- 0 if it was not held, 1 if it was, 2 if nobody could be told.
local score = redis.call('ZSCORE', KEYS[2], raw(ARGV[4]))
local gone = 0
for i = 4, #ARGV do gone = gone + redis.call('ZREM', KEYS[2], raw(ARGV[i])) end
redis.call('HDEL', KEYS[3], ARGV[1])
if gone == 0 then return 0 end
local told = true
-- A number that somebody has removed is not made again.
if redis.call('EXISTS', KEYS[1]) == 1 then
  local free = redis.call('INCRBY', KEYS[1], gone)
  -- A number below zero would break the listener of Redisson.
  if free > 0 then told = tell(ARGV[3], ARGV[2], free) end
end
if not score or tonumber(score) <= now() then return 0 end
return told and 1 or 2
