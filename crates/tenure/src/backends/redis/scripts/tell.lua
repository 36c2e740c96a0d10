-- Wakes those who listen on the channel. The lock is free by now, also if this user may not publish.
local function tell(verb, channel, message) return type(redis.pcall(verb, channel, message or '0')) == 'number' end
