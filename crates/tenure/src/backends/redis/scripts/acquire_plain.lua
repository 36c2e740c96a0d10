-- As acquire.lua. One command finds the lock free, takes it and gives it an end.
local lock, owner = KEYS[1], ARGV[1]
local free, top = redis.call('SET', lock, owner, 'NX', 'PX', ARGV[2]), nil
if not free then
  local holder = redis.call('GET', lock)
  if holder ~= owner then return {0, redis.call('PTTL', lock), holder} end
  redis.call('PEXPIRE', lock, ARGV[2])
  top = redis.call('GET', KEYS[2])
  if top and more(ARGV[5], top) then
    top = ARGV[5]
    put_token(KEYS[2], top, ARGV[4])
  end
end
if not top then
  local fine, made = pcall(next_token, KEYS[2], tonumber(ARGV[3]), ARGV[4], ARGV[5])
  if not fine or type(made) == 'table' then
    -- Without a token there is no lock.
    if free then redis.call('DEL', lock) end
    return type(made) == 'table' and made or redis.error_reply(made)
  end
  top = made
end
if ARGV[6] then redis.call('SET', KEYS[3], owner .. ' ' .. ARGV[6], 'PX', ARGV[2]) end
return {1, top}
