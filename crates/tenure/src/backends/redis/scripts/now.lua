-- What TIME says, in milliseconds, which peers compare with their own clocks.
local function millis(t) return t[1] * 1000 + math.floor(t[2] / 1000) end
local function now() return millis(redis.call('TIME')) end
