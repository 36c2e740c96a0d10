-- The line of Redisson's RFairLock: a list of owners, and until when each keeps its place. A third key says which of them are
-- ours and when they asked last: those end by themselves after their lease, wherever they stand.
local JAVA_WAIT = 300000
local KEEP_LINE = '3600000'

-- Brings list and deadlines back into step: a failover or an eviction may have lost one of them.
local function repair(line, deadlines, at, place)
  if redis.call('LLEN', line) == redis.call('ZCARD', deadlines) then return end
  local in_line = {}
  for _, owner in ipairs(redis.call('LRANGE', line, 0, -1)) do
    if in_line[owner] then
      redis.call('LREM', line, -1, owner)
    else
      in_line[owner] = true
      -- Without a deadline it would stand there for ever, dead or not.
      redis.call('ZADD', deadlines, 'NX', at + place, owner)
    end
  end
  for _, owner in ipairs(redis.call('ZRANGE', deadlines, 0, -1)) do
    -- One that lives comes back to the end of the line; with a deadline it would not know that it is in no line.
    if not in_line[owner] then redis.call('ZREM', deadlines, owner) end
  end
end

-- Takes the dead out of the line. Whether there were any.
local function evict(line, deadlines, ours, at)
  local some = false
  for _, owner in ipairs(redis.call('ZRANGEBYSCORE', ours, '-inf', at)) do
    redis.call('ZREM', ours, owner)
    if redis.call('ZREM', deadlines, owner) == 1 then redis.call('LREM', line, 0, owner) end
    some = true
  end
  while true do
    local head = redis.call('LINDEX', line, '0')
    local deadline = head and redis.call('ZSCORE', deadlines, head)
    if head and not deadline then
      -- Without one it would stand there for ever, dead or not.
      redis.call('ZADD', deadlines, at + 30000, head)
      return some
    end
    if not deadline or tonumber(deadline) > at then return some end
    -- One of ours that is left has asked lately. Its deadline was wrong, which it mends when it asks again.
    if redis.call('ZSCORE', ours, head) then return some end
    redis.call('LPOP', line)
    redis.call('ZREM', deadlines, head)
    some = true
  end
end

-- One of Redisson's who is served takes its own patience off all deadlines behind it. So a deadline of ours is the end of its
-- lease and all that patience: what is left of it is what it has above the time in `ours`. For one that comes now, with `from` as
-- what the first in line may have counted from. Patience is what a deadline has above the one before, and not less than usual.
local function patience_before(line, deadlines, ours, from)
  local last = redis.call('LINDEX', line, '-1')
  if not last then return 0 end
  -- Where the last one is ours, it has the sum.
  local its = redis.call('ZSCORE', ours, last)
  if its then return math.max(0, (tonumber(redis.call('ZSCORE', deadlines, last)) or from) - tonumber(its)) end
  local sum = 0
  for _, other in ipairs(redis.call('LRANGE', line, 0, -1)) do
    local deadline = tonumber(redis.call('ZSCORE', deadlines, other)) or from
    local ends = redis.call('ZSCORE', ours, other)
    sum = ends and math.max(0, deadline - tonumber(ends)) or sum + math.max(JAVA_WAIT, deadline - from)
    from = deadline
  end
  return sum
end

-- Takes the first out of the line: it is served, for so many ms.
local function serve_first(line, deadlines, ours, owner, at, lease)
  redis.call('LPOP', line)
  redis.call('ZREM', deadlines, owner)
  redis.call('ZREM', ours, owner)
  if redis.call('LLEN', line) <= redis.call('ZCARD', ours) then return end
  -- Others of Redisson add up their patience along the line; what we stood for does not stay in the sum.
  for i, other in ipairs(redis.call('LRANGE', line, 0, -1)) do
    if not redis.call('ZSCORE', ours, other) then
      redis.call('ZADD', deadlines, 'XX', 'LT', at + lease + i * JAVA_WAIT, other)
    end
  end
end

-- Clients of ours have identities of version 8, which Redisson's never are.
local function is_ours(owner) return string.sub(owner, 15, 15) == '8' end

-- Says a word to one owner, so that one is woken and not all. Redisson's listen on a channel each, ours on one of their client.
local function say(verb, channel, owner, word, ...)
  if not is_ours(owner) then return tell(verb, channel .. ':' .. owner) end
  return tell(verb, channel .. ':' .. string.sub(owner, 1, 36), table.concat({word, string.sub(owner, 38), ...}, ' '))
end

local function call_next(line, verb, channel)
  local head = redis.call('LINDEX', line, '0')
  return not head or say(verb, channel, head, 'call')
end
