-- KEYS: lock, token, line, deadlines, ours, note if there is one. ARGV: owner, lease, idle time of tokens, how long a place is
-- kept (0: no place), channel, how to publish, the least that the token may be or nothing, note if there is one.
-- {1, token} | {0, ms until asking again, a holder}
local owner, place, at = ARGV[1], tonumber(ARGV[4]), now()
local line, deadlines, ours = KEYS[3], KEYS[4], KEYS[5]
repair(line, deadlines, at, math.max(place, 1000))
local evicted = evict(line, deadlines, ours, at)
local left = redis.call('PTTL', KEYS[1])
local head = redis.call('LINDEX', line, 0)
local again = left ~= -2 and mine(KEYS[1], owner)
if again or left == -2 and (not head or head == owner) then
  local idle, least = tonumber(ARGV[3]), ARGV[7]
  local top = again and redis.call('GET', KEYS[2])
  if not top then
    top = next_token(KEYS[2], 1, idle, least)
    if type(top) == 'table' then return top end
  elseif more(least, top) then
    top = least
    put_token(KEYS[2], top, idle)
  end
  local refused = take(KEYS[1], owner, ARGV[2])
  if refused then return refused end
  if head == owner then
    redis.call('LPOP', line)
    redis.call('ZREM', deadlines, owner)
    redis.call('ZREM', ours, owner)
    local behind = redis.call('LLEN', line)
    if behind > redis.call('ZCARD', ours) then
      -- Others of Redisson add up their patience along the line; what we stood for does not stay in the sum.
      for i, other in ipairs(redis.call('LRANGE', line, 0, -1)) do
        if not redis.call('ZSCORE', ours, other) then
          redis.call('ZADD', deadlines, 'XX', 'LT', at + tonumber(ARGV[2]) + i * JAVA_WAIT, other)
        end
      end
    end
  end
  if ARGV[8] then redis.call('SET', KEYS[6], owner .. ' ' .. ARGV[8], 'PX', ARGV[2]) end
  return {1, top}
end
local holder = left ~= -2 and a_holder(KEYS[1])
if left == -1 then return {0, left, holder} end
if place == 0 then return {0, left == -2 and 1000 or left, holder} end
local deadline = tonumber(redis.call('ZSCORE', deadlines, owner))
local before = 0
if not deadline then
  before = patience_before(line, deadlines, ours, at + math.max(left, 0))
  -- It may still stand there without a deadline.
  redis.call('LREM', line, 0, owner)
  redis.call('RPUSH', line, owner)
elseif head ~= owner then
  before = math.max(0, deadline - (tonumber(redis.call('ZSCORE', ours, owner)) or at + place))
end
redis.call('ZADD', deadlines, string.format('%.0f', at + place + before), owner)
redis.call('ZADD', ours, string.format('%.0f', at + place), owner)
-- Redisson's keys have no expiry; nothing of ours stays for ever.
redis.call('PEXPIRE', line, KEEP_LINE)
redis.call('PEXPIRE', deadlines, KEEP_LINE)
redis.call('PEXPIRE', ours, KEEP_LINE)
head = redis.call('LINDEX', line, 0)
local wait = math.floor(place / 3)
if head == owner then
  -- Nobody says so when a lock expires.
  if left >= 0 then wait = math.min(wait, left + 1) end
elseif left == -2 then
  -- The first in line has been told. If it is dead, its place ends then.
  if evicted then call_next(line, ARGV[6], ARGV[5]) end
  local theirs = redis.call('ZSCORE', ours, head) or redis.call('ZSCORE', deadlines, head)
  wait = math.min(wait, math.max(10, tonumber(theirs or at) - at + 1))
end
return {0, wait, holder}
