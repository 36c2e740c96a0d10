-- Wakes those who listen on the channel. The lock is free by now, also if this user may not publish.
local function tell(channel) return type(redis.pcall('PUBLISH', channel, '0')) == 'number' end
