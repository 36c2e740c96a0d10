-- The server's clock in milliseconds, which peers compare with their own.
local function now()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
