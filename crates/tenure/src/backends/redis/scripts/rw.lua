-- Redisson's RReadWriteLock: a hash with a mode, a field per reader with its hold count, and the writer's under owner:write. Each
-- hold of a reader has a key of its own besides, which ends with it. Ours hold once.

-- Writers of ours in line are members of a sorted set, each with the time when its place ends. This member is none of them: it says
-- whose turn it is when the lock comes free. Missing: whoever comes first has it. -1: it is the writers', because some have read
-- since. Below: it is the writers' until that time, with a minus, so that no count of writers counts it.
local TURN = 'turn'

-- Takes a writer out of the line. After the last one it is nobody's turn.
local function leave_line(writers, owner)
  local left = redis.call('ZREM', writers, owner)
  if left == 1 and redis.call('ZCARD', writers) == 1 then redis.call('ZREM', writers, TURN) end
  return left
end

-- All of Redisson's who sleep wake up at 1. One that has asked but does not sleep yet misses that, and finds the 0.
local function tell_all(verb, channel) return tell(verb, channel, '1') and tell(verb, channel, '0') end

local function share(prefix, reader, n) return prefix .. reader .. ':rwlock_timeout:' .. n end

-- How long a reader still has, -2 if it is dead. A share that is on its way to another server is refused here: then the reader lives.
local function reader_left(lock, prefix, reader)
  local count = tonumber(redis.call('HGET', lock, reader)) or 0
  local most = -2
  for n = 1, math.min(count, 64) do
    local left = redis.pcall('PTTL', share(prefix, reader, n))
    if type(left) ~= 'number' then left = redis.call('PTTL', lock) end
    most = math.max(most, left)
  end
  return most
end

-- The longest time that a reader still has. The dead are removed. Stops early where there are many: one who lives is enough.
local function sweep(lock, prefix, notes)
  local most = -2
  local many = redis.call('HLEN', lock) > 64
  for i, reader in ipairs(redis.call('HKEYS', lock)) do
    if reader ~= 'mode' and string.sub(reader, -6) ~= ':write' then
      local left = reader_left(lock, prefix, reader)
      if left == -2 then
        redis.call('HDEL', lock, reader)
        redis.call('HDEL', notes, reader)
      else
        most = math.max(most, left)
        if many and i > 128 then return redis.call('PTTL', lock) end
      end
    end
  end
  return most
end
