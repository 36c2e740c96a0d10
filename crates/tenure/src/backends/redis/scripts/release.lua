-- KEYS: lock, note if there is one. ARGV: owner, channel. 1 if it was held.
if not give(KEYS[1], ARGV[1]) then return 0 end
if KEYS[2] then redis.call('DEL', KEYS[2]) end
redis.call('PUBLISH', ARGV[2], '0')
return 1
