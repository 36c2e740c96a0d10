-- KEYS: lock, token, line, deadlines, ours, note if there is one. ARGV: owner, lease, idle time of tokens, how long a place is
-- kept (0: no place), channel, how to publish, the least that the token may be or nothing, note if there is one.
-- {1, token} | {0, ms until asking again, a holder}, and for one in line: when its place ends, 1 if one of Redisson's will wake it
local owner, place, idle = ARGV[1], tonumber(ARGV[4]), ARGV[3]
local lock, line, deadlines, ours = KEYS[1], KEYS[3], KEYS[4], KEYS[5]
local t = redis.call('TIME')
local at = millis(t)
local left = redis.call('PTTL', lock)
-- A lock's hash has one field: its holder tells whether that is the one who asks.
local holder = left ~= -2 and a_holder(lock)
local again, free, evicted = holder == owner, left == -2, nil
local head = free and redis.call('LINDEX', line, '0')
local function tidy()
  repair(line, deadlines, at, math.max(place, 1000))
  evicted = evict(line, deadlines, ours, at)
end
if head and head ~= owner then
  tidy()
  head = redis.call('LINDEX', line, '0')
end
if again or free and (not head or head == owner) then
  local least = ARGV[7]
  local top = again and redis.call('GET', KEYS[2])
  if not top then
    top = next_token(KEYS[2], 1, idle, least, t)
    if type(top) == 'table' then return top end
  elseif more(least, top) then
    top = least
    put_token(KEYS[2], top, idle)
  end
  if again then
    redis.call('PEXPIRE', lock, ARGV[2])
  else
    local refused = take(lock, owner, ARGV[2])
    if refused then return refused end
  end
  if head == owner then serve_first(line, deadlines, ours, owner, at, tonumber(ARGV[2])) end
  if ARGV[8] then redis.call('SET', KEYS[6], owner .. ' ' .. ARGV[8], 'PX', ARGV[2]) end
  return {1, top}
end
if left == -1 then return {0, left, holder} end
if place == 0 then return {0, free and 1000 or left, holder} end

local ends = string.format('%.0f', at + place)
local function enter()
  local patience = patience_before(line, deadlines, ours, at + math.max(left, 0))
  local first = redis.call('RPUSH', line, owner) == 1
  redis.call('ZADD', deadlines, string.format('%.0f', at + place + patience), owner)
  return first, patience
end
local first, patience, entered
if redis.call('ZADD', ours, 'NX', ends, owner) == 1 then
  entered = true
  first, patience = enter()
else
  -- Only those who wait for long look after the line.
  if evicted == nil then tidy() end
  local last, deadline = redis.call('ZSCORE', ours, owner), redis.call('ZSCORE', deadlines, owner)
  if last and deadline then
    first = redis.call('LINDEX', line, '0') == owner
    patience = first and 0 or math.max(0, tonumber(deadline) - tonumber(last))
    redis.call('ZADD', deadlines, string.format('%.0f', at + place + patience), owner)
  else
    -- It may still stand there without a deadline.
    redis.call('LREM', line, 0, owner)
    first, patience = enter()
  end
  redis.call('ZADD', ours, ends, owner)
end
-- Redisson's keys have no expiry; nothing of ours stays for ever. Not each time: many come and go in a moment.
if first or not entered or patience > 0 or at % 64 == 0 then
  redis.call('PEXPIRE', line, KEEP_LINE)
  redis.call('PEXPIRE', deadlines, KEEP_LINE)
  redis.call('PEXPIRE', ours, KEEP_LINE)
end
local wait = math.floor(place / 3)
if first then
  -- Nobody says so when a lock expires.
  if left >= 0 then wait = math.min(wait, left + 1) end
elseif free then
  -- The first in line has been told. If it is dead, its place ends then.
  if evicted then pass_on(idle, ARGV[6], ARGV[5]) end
  head = redis.call('LINDEX', line, '0')
  local theirs = head and (redis.call('ZSCORE', ours, head) or redis.call('ZSCORE', deadlines, head))
  wait = math.min(wait, math.max(10, tonumber(theirs or at) - at + 1))
end
local by_theirs = patience > 0 or holder and not is_ours(holder)
return {0, wait, holder, ends, by_theirs and 1 or 0}
