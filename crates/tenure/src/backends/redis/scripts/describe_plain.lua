-- As describe_redisson.lua, of a string lock. KEYS: lock, token, note.
local function describe()
  local left = redis.call('PTTL', KEYS[1])
  local holders = left ~= -2 and {{redis.call('GET', KEYS[1]), left, 'lock', false}} or {}
  return {left, redis.call('GET', KEYS[2]), redis.call('GET', KEYS[3]), {}, false, false, holders}
end
