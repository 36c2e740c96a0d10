-- Redisson's RPermitExpirableSemaphore: a number of free permits, and a set of ids with their ends. An id is 16 bytes.
local function raw(hex)
  return (string.gsub(hex, '..', function(two) return string.char(tonumber(two, 16)) end))
end
local function hex(id)
  return (string.gsub(id, '.', function(byte) return string.format('%02x', string.byte(byte)) end))
end

-- Puts those back whose time is over. How many are free, nothing if there is no number.
local function sweep_permits(number, held, at)
  local expired = redis.call('ZRANGEBYSCORE', held, 0, at)
  for _, id in ipairs(expired) do redis.call('ZREM', held, id) end
  local free = redis.call('GET', number)
  if not free then return nil, #expired end
  if #expired > 0 then free = redis.call('INCRBY', number, #expired) end
  free = tonumber(free)
  return free, #expired
end

-- What somebody else keeps for ever stays; ours goes after a while of disuse.
local function keep(number, held, owners, life)
  local left = redis.call('PTTL', number)
  if left >= 0 then
    redis.call('PEXPIRE', number, life)
    redis.call('PEXPIRE', held, life)
  end
  redis.call('PEXPIRE', owners, life)
end
