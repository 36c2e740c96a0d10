-- KEYS: lock, token, note. ARGV: channel, idle time of tokens, how to publish.
-- {new fence, ms left, old token, note, holders...} or nothing if nobody holds it.
local left = redis.call('PTTL', KEYS[1])
if left == -2 then return false end
local broken = holders(KEYS[1])
for _, holder in ipairs(broken) do
  if left == -1 or not is_owner(holder) then return redis.error_reply('FOREIGN the key is not a lock of this layout') end
end
local old, note = redis.call('GET', KEYS[2]), redis.call('GET', KEYS[3])
local fence = next_token(KEYS[2], 1, tonumber(ARGV[2]))
if type(fence) == 'table' then return fence end
redis.call('DEL', KEYS[1], KEYS[3])
tell(ARGV[3], ARGV[1])
local state = {fence, left, old, note}
for _, holder in ipairs(broken) do state[#state + 1] = holder end
return state
