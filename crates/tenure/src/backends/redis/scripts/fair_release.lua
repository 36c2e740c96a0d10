-- KEYS: lock, line, deadlines, ours, note if there is one. ARGV: owner, channel, how to publish.
-- 0 if it was not held, 1 if it was, 2 if nobody could be told.
local gave = give(KEYS[1], ARGV[1])
if gave and KEYS[5] then redis.call('DEL', KEYS[5]) end
local left_line = redis.call('ZREM', KEYS[4], ARGV[1]) == 1
if left_line then
  redis.call('ZREM', KEYS[3], ARGV[1])
  redis.call('LREM', KEYS[2], 0, ARGV[1])
end
local told = true
if (gave or left_line) and redis.call('EXISTS', KEYS[1]) == 0 then
  evict(KEYS[2], KEYS[3], KEYS[4], now())
  told = call_next(KEYS[2], ARGV[3], ARGV[2])
end
if not gave then return 0 end
return told and 1 or 2
