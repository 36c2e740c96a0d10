-- KEYS: number, held, owners, token. ARGV: owner, lease, how many there are if nobody has said so, idle time of tokens, life of
-- the keys, channel, how to publish, note, the least that the token may be or nothing, ids...
-- {1, token} | {0, ms until asking again}
local number, held, t = KEYS[1], KEYS[2], redis.call('TIME')
local at = millis(t)
local until_ = string.format('%.0f', at + tonumber(ARGV[2]))
local take = #ARGV - 9
local free, news, refused = sweep_permits(number, held, at)
if refused then return refused end
if news > 0 then forget_owners(KEYS[3], held) end
local function hold(top)
  for i = 10, #ARGV do redis.call('ZADD', held, until_, raw(ARGV[i])) end
  redis.call('HSET', KEYS[3], ARGV[1], top .. ' ' .. ARGV[10] .. ' ' .. ARGV[8])
  keep(number, held, KEYS[3], ARGV[5])
end
local mine = count_held(held, 10, #ARGV, at)
if mine > 0 and mine < take then
  -- What is left of a claim that is broken goes back, or the number would grow.
  for i = 10, #ARGV do redis.call('ZREM', held, raw(ARGV[i])) end
  if free then free = redis.call('INCRBY', number, mine) end
end
if mine == take then
  local top = token_of(KEYS[3], ARGV[1])
  if not top then
    top = next_token(KEYS[4], 1, ARGV[4], ARGV[9])
    if type(top) == 'table' then return top end
  elseif more(ARGV[9], top) then
    top = ARGV[9]
    if more(top, redis.call('GET', KEYS[4]) or '') then put_token(KEYS[4], top, ARGV[4]) end
  end
  hold(top)
  return {1, top}
end
if not free then
  local of = tonumber(ARGV[3])
  if of > 0 then
    free = of - redis.call('ZCARD', held)
    make_number(number, KEYS[3], free, ARGV[5])
    -- Those of Redisson who have found no number sleep until they are told of one.
    news = 1
  else
    free = 0
  end
end
if free >= take then
  local top = next_token(KEYS[4], 1, ARGV[4], ARGV[9], t)
  if type(top) == 'table' then return top end
  free = redis.call('DECRBY', number, take)
  hold(top)
  if news > 0 and free > 0 then tell(ARGV[7], ARGV[6], free) end
  return {1, top}
end
if news > 0 and free > 0 then tell(ARGV[7], ARGV[6], free) end
local first = redis.call('ZRANGE', held, 0, 0, 'WITHSCORES')
return {0, first[2] and math.max(1, math.min(5000, tonumber(first[2]) - at)) or 5000}
