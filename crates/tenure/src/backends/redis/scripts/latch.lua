-- Redisson's RCountDownLatch: a number that is gone at zero.
-- KEYS: count, that this owner has done its part. ARGV: set, down, zero or remove; owner, count, life of the key, for how
-- long an owner is remembered, channel, how to publish.
-- {2, what is left} | {0, ms until asking again}
local what, life = ARGV[1], tonumber(ARGV[4])
local count = redis.call('GET', KEYS[1])
if count and not tonumber(count) then return redis.error_reply('FOREIGN the key holds ' .. string.sub(count, 1, 32)) end
count = tonumber(count or nil)
if what == 'zero' then
  if not count or count <= 0 then return {2, 0} end
  -- A latch lives for as long as somebody waits for it. Not each time: it would wake all the others.
  local left = redis.call('PTTL', KEYS[1])
  if left >= 0 and left < life / 2 then redis.call('PEXPIRE', KEYS[1], life) end
  return {0, 5000}
end
-- Asking again changes nothing, whatever others have done since.
if redis.call('EXISTS', KEYS[2]) == 1 then return {2, math.max(0, count or 0)} end
if what == 'set' and count then return {0, 5000} end
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[5])
if what == 'set' then
  redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
  tell(ARGV[7], ARGV[6], '1')
  return {2, tonumber(ARGV[3])}
elseif what == 'remove' then
  -- Redisson says 1 here, which closes, and strands those who wait.
  if redis.call('DEL', KEYS[1]) == 1 then tell(ARGV[7], ARGV[6], '0') end
  return {2, 0}
elseif not count then
  return {2, 0}
end
count = redis.call('DECR', KEYS[1])
if count <= 0 then
  redis.call('DEL', KEYS[1])
  tell(ARGV[7], ARGV[6], '0')
elseif redis.call('PTTL', KEYS[1]) >= 0 then
  redis.call('PEXPIRE', KEYS[1], life)
end
return {2, math.max(0, count)}
