-- Wakes those who listen on the channel. The lock is free by now, also if this user may not publish.
local function tell(verb, channel) return type(redis.pcall(verb, channel, '0')) == 'number' end
