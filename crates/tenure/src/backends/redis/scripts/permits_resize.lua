-- KEYS: number, held, owners. ARGV: how many, life of the keys, channel, how to publish. {2, how many are free}
local _, _, refused = sweep_permits(KEYS[1], KEYS[2], now())
if refused then return refused end
local free = tonumber(ARGV[1]) - redis.call('ZCARD', KEYS[2])
if redis.call('EXISTS', KEYS[1]) == 0 then
  make_number(KEYS[1], KEYS[3], free, ARGV[2])
else
  redis.call('SET', KEYS[1], free, 'KEEPTTL')
  keep(KEYS[1], KEYS[2], KEYS[3], ARGV[2])
end
if free > 0 then tell(ARGV[4], ARGV[3], free) end
return {2, math.max(0, free)}
