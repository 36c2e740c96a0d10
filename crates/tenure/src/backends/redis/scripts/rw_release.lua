-- KEYS: lock, writers in line, notes, share of this reader. ARGV: owner, what stands before a reader in its share's name, channel,
-- how to publish. 0 if it was not held, otherwise whether somebody listens.
local lock, owner = KEYS[1], ARGV[1]
local told = true
if leave_line(KEYS[2], owner) == 1 then
  -- Readers have waited for this writer.
  told = tell_all(ARGV[4], ARGV[3])
end
local wrote = redis.call('HDEL', lock, owner .. ':write') == 1
local read = redis.call('HDEL', lock, owner) == 1
local alive = redis.call('DEL', KEYS[4]) == 1
if not wrote and not read then return 0 end
redis.call('HDEL', KEYS[3], owner)
if wrote then
  if redis.call('HLEN', lock) <= 1 then
    redis.call('DEL', lock)
  else
    redis.call('HSET', lock, 'mode', 'read')
  end
  told = tell_all(ARGV[4], ARGV[3])
else
  local most = redis.call('HLEN', lock) > 1 and sweep(lock, ARGV[2], KEYS[3]) or -2
  if most > 0 then
    redis.call('PEXPIRE', lock, most)
  elseif redis.call('HGET', lock, 'mode') == 'read' then
    redis.call('DEL', lock)
    told = tell(ARGV[4], ARGV[3], '0')
  end
end
if not wrote and not alive then return 0 end
return released(told)
