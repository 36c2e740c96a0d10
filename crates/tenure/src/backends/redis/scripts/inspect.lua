-- KEYS: lock, token, note. {ms left, token, note, holders...}; ms left is -2 when it is free.
local left = redis.call('PTTL', KEYS[1])
local state = {left, redis.call('GET', KEYS[2]), redis.call('GET', KEYS[3])}
if left ~= -2 then
  for _, holder in ipairs(holders(KEYS[1])) do state[#state + 1] = holder end
end
return state
