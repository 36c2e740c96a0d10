-- The hybrid token: larger than the last one, and not behind the server's clock. Returns the largest of `count` new ones
-- as a string, because Lua's numbers end at 2^53.
local function next_token(key, count, idle)
  local t = redis.call('TIME')
  local first = t[1] * 1000000 + t[2]
  local top = string.format('%.0f', first + count - 1)
  local last
  if idle == 0 then
    last = redis.call('SET', key, top, 'GET')
  else
    last = redis.call('SET', key, top, 'PX', idle, 'GET')
  end
  if not last then return top end
  local n = tonumber(last)
  if n and n < first then return top end
  -- The clock is behind the counter: put it back and count on. INCRBY is exact where Lua is not.
  redis.call('SET', key, last, 'KEEPTTL')
  if not n then return redis.error_reply('FOREIGN the token key holds ' .. string.sub(last, 1, 32)) end
  redis.call('INCRBY', key, count)
  return redis.call('GET', key)
end
