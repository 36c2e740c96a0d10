-- Leaves the line and calls the next, with the line's own key alone, for a slot on its way: the other keys may be at another server.
-- Who has a deadline and no place is put right by the next who asks. KEYS: line. ARGV: owner, channel, how to publish, 1 if the lock
-- was given back.
local left = redis.call('LREM', KEYS[1], 0, ARGV[1]) > 0
if left or ARGV[4] == '1' then call_next(KEYS[1], ARGV[3], ARGV[2]) end
return left and 1 or 0
