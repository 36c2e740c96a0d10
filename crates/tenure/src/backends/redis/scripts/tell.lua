-- Wakes those who listen on the channel, and says how many do. The lock is free by now, also if this user may not publish: false.
local function tell(verb, channel, message)
  local heard = redis.pcall(verb, channel, message or '0')
  return type(heard) == 'number' and heard
end
-- The answer to a release: 2 if nobody could be told, 3 if somebody listens, otherwise 1.
local function released(told) return not told and 2 or told ~= true and told > 0 and 3 or 1 end
