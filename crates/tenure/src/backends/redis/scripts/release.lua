-- KEYS: lock, note if there is one. ARGV: owner, channel, how to publish.
-- 0 if it was not held, 1 if it was, 2 if nobody could be told.
if not give(KEYS[1], ARGV[1]) then return 0 end
if KEYS[2] then redis.call('DEL', KEYS[2]) end
return tell(ARGV[3], ARGV[2]) and 1 or 2
