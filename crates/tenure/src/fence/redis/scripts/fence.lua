-- KEYS: the fence. ARGV: the token, how many milliseconds the fence outlives its last use (0: for ever).
local fence, token, idle = KEYS[1], ARGV[1], ARGV[2]
local seen = redis.call('GET', fence)
if seen and not (seen == '0' or string.find(seen, '^[1-9]%d*$') and not more(seen, '9223372036854775807')) then
  return redis.error_reply('FOREIGN the fence key holds something else than a token')
end
if seen and more(seen, token) then return {seen} end

local function raise()
  if idle == '0' then
    redis.call('SET', fence, token)
  else
    redis.call('SET', fence, token, 'PX', idle)
  end
end
