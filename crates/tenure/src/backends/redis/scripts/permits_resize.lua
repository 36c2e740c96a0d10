-- KEYS: number, held. ARGV: how many, life of the keys, channel, how to publish. {2, how many are free}
local _, _, refused = sweep_permits(KEYS[1], KEYS[2], now())
if refused then return refused end
local free = tonumber(ARGV[1]) - redis.call('ZCARD', KEYS[2])
local left = redis.call('PTTL', KEYS[1])
if left == -1 then
  redis.call('SET', KEYS[1], free)
else
  redis.call('SET', KEYS[1], free, 'PX', ARGV[2])
end
if free > 0 then tell(ARGV[4], ARGV[3], free) end
return {2, math.max(0, free)}
