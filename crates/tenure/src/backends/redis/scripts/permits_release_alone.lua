-- As permits_release.lua, with the list of what is held alone, for a slot on its way: the number may be at another server. What is
-- given back lapses at once, and so goes back to the number with the next who asks.
-- KEYS: held. ARGV: owner, channel, how to publish, ids...
local at, gone = now(), 0
for i = 4, #ARGV do
  local ends = redis.call('ZSCORE', KEYS[1], raw(ARGV[i]))
  if ends and tonumber(ends) > at then
    redis.call('ZADD', KEYS[1], 'XX', string.format('%.0f', at), raw(ARGV[i]))
    gone = gone + 1
  end
end
if gone == 0 then return 0 end
return tell(ARGV[3], ARGV[2], gone) and 1 or 2
