-- A record is a hash: token, earlier, result, changed. Tokens have 20 digits each, because numbers are not exact here.
local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function token_of(key)
  return redis.call('HGET', key, 'token')
end

local function put(key, token, keep)
  redis.call('HSET', key, 'token', token, 'changed', now())
  redis.call('PEXPIRE', key, keep)
end
