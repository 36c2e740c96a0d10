-- Redisson's RPermitExpirableSemaphore: a number of free permits, and a set of ids with their ends. An id is 16 bytes.
local function raw(hex)
  return (string.gsub(hex, '..', function(two) return string.char(tonumber(two, 16)) end))
end
local function hex(id)
  return (string.gsub(id, '.', function(byte) return string.format('%02x', string.byte(byte)) end))
end

-- A number of ours is known by a field among its owners.
local MADE = 'made'
local YEAR = 365 * 24 * 3600 * 1000

-- Forgets the owners of permits that are gone. Whose first id it was stands behind the token.
local function forget_owners(owners, held)
  local all = redis.call('HGETALL', owners)
  for i = 1, #all, 2 do
    local id = string.match(all[i + 1], '^%d+ (%x+)')
    if all[i] ~= MADE and not (id and redis.call('ZSCORE', held, raw(id))) then redis.call('HDEL', owners, all[i]) end
  end
end

-- How many of these ids, from the first argument on, are held at this time. Others may have taken some for lapsed.
local function count_held(held, first, last, at)
  local n = 0
  for i = first, last do
    local ends = redis.call('ZSCORE', held, raw(ARGV[i]))
    if ends and tonumber(ends) > at then n = n + 1 end
  end
  return n
end

-- Puts those back whose time is over. How many are free, nothing if there is no number; how many came back; or a refusal.
local function sweep_permits(number, held, at)
  local free = redis.call('GET', number)
  if free and not tonumber(free) then
    return nil, 0, redis.error_reply('FOREIGN the key holds ' .. string.sub(free, 1, 32))
  end
  local expired = redis.call('ZRANGEBYSCORE', held, 0, at)
  for _, id in ipairs(expired) do redis.call('ZREM', held, id) end
  if free and #expired > 0 then free = redis.call('INCRBY', number, #expired) end
  return tonumber(free or nil), #expired
end

local function make_number(number, owners, free, life)
  redis.call('SET', number, free, 'PX', life)
  redis.call('HSET', owners, MADE, 1)
  redis.call('PEXPIRE', owners, life)
end

-- Ours goes after a while of disuse. What somebody else has set ends when they said, or never, and the list of permits with it.
local function keep(number, held, owners, life)
  local left = redis.call('PTTL', number)
  -- Not each time: it lives for days.
  if left >= 0 and left < tonumber(life) * 0.9 and redis.call('HEXISTS', owners, MADE) == 1 then
    redis.call('PEXPIRE', number, life)
    left = tonumber(life)
  end
  -- The list beside a plain counter is ours alone. While it stands, permits of our dead can still come back.
  if string.find(held, '^tenure_') then left = math.max(tonumber(life), YEAR) end
  if left >= 0 then redis.call('PEXPIRE', held, left) end
  redis.call('PEXPIRE', owners, life)
end
