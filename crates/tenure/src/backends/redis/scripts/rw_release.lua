-- KEYS: lock, writers in line, notes, share of this reader. ARGV: owner, what stands before a reader in its share's name, channel,
-- how to publish, 1 if it can only have read. 0 if it was not held, otherwise whether somebody listens.
local lock, owner, reader = KEYS[1], ARGV[1], ARGV[5] == '1'
local told = true
local wrote = not reader and redis.call('HDEL', lock, owner .. ':write') == 1
-- Who writes has left the line.
if not reader and not wrote and leave_line(KEYS[2], owner) == 1 then
  -- Readers have waited for this writer.
  told = tell_all(ARGV[4], ARGV[3])
end
local read = not wrote and redis.call('HDEL', lock, owner) == 1
local alive = not wrote and redis.call('DEL', KEYS[4]) == 1
if not wrote and not read then return 0 end
redis.call('HDEL', KEYS[3], owner)
local others = redis.call('HLEN', lock) - 1
if wrote then
  if others <= 0 then
    redis.call('DEL', lock)
  else
    redis.call('HSET', lock, 'mode', 'read')
  end
  told = tell_all(ARGV[4], ARGV[3])
else
  local most = others > 0 and sweep(lock, ARGV[2], KEYS[3]) or -2
  if most > 0 then
    redis.call('PEXPIRE', lock, most)
  elseif others <= 0 or redis.call('HGET', lock, 'mode') == 'read' then
    redis.call('DEL', lock)
    told = tell(ARGV[4], ARGV[3], '0')
  end
end
if not wrote and not alive then return 0 end
return released(told)
