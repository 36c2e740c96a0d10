-- KEYS: lock, token, note. What is known of a name, in the form that describe.lua has.
local left = redis.call('PTTL', KEYS[1])
local state = {left, redis.call('GET', KEYS[2]), redis.call('GET', KEYS[3]), {}, false, false, {}}
if left ~= -2 then
  for _, holder in ipairs(holders(KEYS[1])) do state[7][#state[7] + 1] = {holder, left, 'lock', false} end
end
return state
