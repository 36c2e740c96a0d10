-- KEYS: lock, token, note if there is one. ARGV: owner, lease, tokens, idle time of tokens, the least that the
-- largest token may be or nothing, note if there is one.
-- {1, largest token} | {0, ms left, a holder}
local left = redis.call('PTTL', KEYS[1])
local top
if left ~= -2 then
  -- A lock's hash has one field: its holder tells whether that is the one who asks.
  local holder = a_holder(KEYS[1])
  if holder ~= ARGV[1] then return {0, left, holder} end
  top = redis.call('GET', KEYS[2])
  if top and more(ARGV[5], top) then
    top = ARGV[5]
    put_token(KEYS[2], top, ARGV[4])
  end
end
if not top then
  top = next_token(KEYS[2], tonumber(ARGV[3]), ARGV[4], ARGV[5])
  if type(top) == 'table' then return top end
end
local refused = take(KEYS[1], ARGV[1], ARGV[2])
if refused then return refused end
if ARGV[6] then redis.call('SET', KEYS[3], ARGV[1] .. ' ' .. ARGV[6], 'PX', ARGV[2]) end
return {1, top}
