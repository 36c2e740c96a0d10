-- KEYS: lock, token, writers in line, notes, share of this reader. ARGV: read, write or downgrade, owner, lease, tokens, idle time of tokens,
-- how long a place in line is kept (0: no place), channel, how to publish, the least that the largest token may be or nothing, note if
-- there is one.
-- {1, largest token, 1 if a writer now reads} | {0, ms until asking again, a holder}
local lock, writers, owner, lease = KEYS[1], KEYS[3], ARGV[2], tonumber(ARGV[3])
local place, t = tonumber(ARGV[6]), redis.call('TIME')
local at = millis(t)
local left = redis.call('PTTL', lock)
local mode = left ~= -2 and redis.call('HGET', lock, 'mode')
local writes = mode == 'write' and redis.call('HEXISTS', lock, owner .. ':write') == 1
local reads = mode == 'read' and redis.call('HEXISTS', lock, owner) == 1 and redis.call('EXISTS', KEYS[5]) == 1

-- Writers in line whom one who wants to read would pass.
local passes = ARGV[1] == 'read' and not reads and redis.call('ZCOUNT', writers, '(' .. at, '+inf') > 0

-- For how long a free lock is left to them: long enough to hear of it and to ask, or those who are nearer would always be there
-- before them. From the first question of a reader on: a lock may have come free long ago, and nobody was told. One that
-- does not come costs readers this, each time.
local GRACE = 300
local function left_to_writers()
  local turn = tonumber(redis.call('ZSCORE', writers, TURN) or 0)
  if turn == 0 then return 0 end
  local grace = -turn - at
  -- The clock may have been set back.
  if turn == -1 or grace > GRACE then
    redis.call('ZADD', writers, -(at + GRACE), TURN)
    return GRACE
  end
  return math.max(0, grace)
end

local free, grace = left == -2, 0
if ARGV[1] == 'write' then
  free = free or writes
elseif ARGV[1] == 'downgrade' then
  -- Never anew: somebody may have written since.
  free = writes or reads
else
  if free and passes then grace = left_to_writers() end
  -- A writer in line comes first, or readers who come and go would keep it out for ever.
  free = free and grace == 0 or reads or mode == 'read' and not passes
end
if not free then
  if grace > 0 then return {0, grace, false} end
  local wait = left
  if left == -2 then return {0, 0, false} end
  if ARGV[1] == 'write' and place > 0 then
    redis.call('ZREMRANGEBYSCORE', writers, 0, at)
    local mine = redis.call('ZSCORE', writers, owner)
    -- Not each time: others listen to this key, and two who write it whenever they are woken would wake each other for ever.
    if not mine or tonumber(mine) - at <= place * 2 / 3 then
      redis.call('ZADD', writers, at + place, owner)
      if not mine and mode == 'read' then redis.call('ZADD', writers, -1, TURN) end
      if redis.call('PTTL', writers) < 2 * place then redis.call('PEXPIRE', writers, 2 * place) end
    end
    if wait >= 0 then wait = math.min(wait, math.floor(place / 3)) end
  elseif mode == 'read' and wait >= 0 then
    local first = redis.call('ZRANGE', writers, '(' .. at, '+inf', 'BYSCORE', 'LIMIT', 0, 1, 'WITHSCORES')
    if first[2] then wait = math.max(10, math.min(wait, tonumber(first[2]) - at)) end
  end
  return {0, wait, a_holder(lock)}
end

if left ~= -2 and (left < lease or mode == 'write') then
  -- Before anything is written: a user who may not do this must not end what others hold.
  local set = redis.pcall('PEXPIRE', lock, ARGV[3])
  if type(set) == 'table' then return set end
end
local idle, least = ARGV[5], ARGV[9]
local top = (reads or writes) and token_of(KEYS[4], owner)
if not top then
  top = next_token(KEYS[2], tonumber(ARGV[4]), idle, least, t)
  if type(top) == 'table' then return top end
elseif more(least, top) then
  top = least
  -- Another reader may have been given a larger one.
  if more(top, redis.call('GET', KEYS[2]) or '') then put_token(KEYS[2], top, idle) end
end
if ARGV[1] == 'write' then
  redis.call('HSET', lock, 'mode', 'write', owner .. ':write', '1')
  redis.call('ZREM', writers, owner, TURN)
else
  if passes then redis.call('ZADD', writers, -1, TURN) end
  redis.call('SET', KEYS[5], '1', 'PX', ARGV[3])
  redis.call('HSET', lock, 'mode', 'read', owner, '1')
  if writes then redis.call('HDEL', lock, owner .. ':write') end
end
if left == -2 then
  local set = redis.pcall('PEXPIRE', lock, ARGV[3])
  if type(set) == 'table' then
    -- Nor leave a lock that never ends.
    redis.call('DEL', lock, KEYS[5])
    return set
  end
end
-- Redisson says nothing here, and its readers would sleep on.
local changed = writes and ARGV[1] == 'downgrade'
if changed then tell_all(ARGV[8], ARGV[7]) end
redis.call('HSET', KEYS[4], owner, top .. ' ' .. (ARGV[10] or ''))
-- The lock lasts for the longest lease of all who have a note.
redis.call('PEXPIRE', KEYS[4], math.max(lease, left))
if changed then return {1, top, 1} end
return {1, top}
