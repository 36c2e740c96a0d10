-- KEYS: lock, note if there is one. ARGV: owner, channel, how to publish.
-- 0 if it was not held, otherwise whether somebody listens.
if not give(KEYS[1], ARGV[1]) then return 0 end
if KEYS[2] then redis.call('DEL', KEYS[2]) end
return released(tell(ARGV[3], ARGV[2]))
