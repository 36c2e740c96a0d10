-- KEYS: lock, token, line, deadlines, ours, note if there is one. ARGV: owner, idle time of tokens, channel, how to publish.
-- 0 if it was not held, 1 if it was, 2 if nobody could be told.
local owner = ARGV[1]
local gave = give(KEYS[1], owner)
if gave and KEYS[6] then redis.call('DEL', KEYS[6]) end
-- Who holds it has left the line.
local left_line = not gave and redis.call('ZREM', KEYS[5], owner) == 1
if left_line then
  redis.call('ZREM', KEYS[4], owner)
  redis.call('LREM', KEYS[3], '0', owner)
end
local told = not gave and not left_line or pass_on(ARGV[2], ARGV[4], ARGV[3])
if not gave then return 0 end
return told and 1 or 2
