-- Keeps a token, and returns the one before. Numbers go into commands as text where they come as text: Lua is slow to write them.
local function put_token(key, token, idle)
  if idle == '0' then return redis.call('SET', key, token, 'GET') end
  return redis.call('SET', key, token, 'PX', idle, 'GET')
end

-- The largest of `count` new tokens: larger than the last one, and at least `least` if that is not empty, or else not behind the
-- server's clock, which the caller may have read: `t`.
local function next_token(key, count, idle, least, t)
  local top = least
  if top == '' then
    t = t or redis.call('TIME')
    top = string.format('%.0f', t[1] * 1000000 + t[2] + count - 1)
  end
  local last = put_token(key, top, idle)
  if not last then return top end
  local n, wanted = tonumber(last), tonumber(top)
  if n and n + count <= wanted and wanted < 2 ^ 53 then return top end
  -- The counter is ahead: put it back and count on. INCRBY is exact where Lua is not.
  redis.call('SET', key, last, 'KEEPTTL')
  if not n then return redis.error_reply('FOREIGN the token key holds ' .. string.sub(last, 1, 32)) end
  redis.call('INCRBY', key, count)
  last = redis.call('GET', key)
  if not more(top, last) then return last end
  redis.call('SET', key, top, 'KEEPTTL')
  return top
end
