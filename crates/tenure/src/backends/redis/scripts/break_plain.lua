-- KEYS: lock, token, note. ARGV: channel, idle time of tokens, how to publish, the least that the fence may be or nothing.
-- {new fence, what was there as described} or nothing if nobody holds it: then the fence is raised if that says how far.
local was = describe()
if was[1] == -2 and ARGV[4] == '' then return false end
if was[1] == -1 then return redis.error_reply('FOREIGN the key is not a lock of this layout') end
local fence = next_token(KEYS[2], 1, ARGV[2], ARGV[4])
if type(fence) == 'table' then return fence end
if was[1] == -2 then return false end
redis.call('DEL', KEYS[1], KEYS[3])
tell(ARGV[3], ARGV[1])
return {fence, was}
