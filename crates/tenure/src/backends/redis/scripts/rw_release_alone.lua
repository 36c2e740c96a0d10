-- As rw_release.lua, with the lock's own key alone, for a slot on its way: the others may be at another server. Which readers are
-- dead is not known here, so that the lock may last for as long as the longest of their leases.
-- KEYS: lock. ARGV: owner, channel, how to publish, 1 if readers have waited for this writer.
local lock, owner = KEYS[1], ARGV[1]
local wrote = redis.call('HDEL', lock, owner .. ':write') == 1
local read = redis.call('HDEL', lock, owner) == 1
local last = (wrote or read) and redis.call('HLEN', lock) <= 1
if last then
  redis.call('DEL', lock)
elseif wrote then
  redis.call('HSET', lock, 'mode', 'read')
end
local told = true
if last or wrote or ARGV[4] == '1' then told = tell_all(ARGV[3], ARGV[2]) end
if not wrote and not read then return 0 end
return released(told)
