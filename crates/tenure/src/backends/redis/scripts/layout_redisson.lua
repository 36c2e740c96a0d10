-- Redisson's RLock: a hash of one field, the owner, with its hold count. Ours counts holds in the client: always 1.
local function mine(key, owner) return redis.call('HEXISTS', key, owner) == 1 end
local function take(key, owner, lease)
  redis.call('HSET', key, owner, '1')
  local set = redis.pcall('PEXPIRE', key, lease)
  if type(set) == 'table' then
    -- A user who may not do this must not leave a lock that never ends.
    redis.call('HDEL', key, owner)
    return set
  end
end
-- The hash goes with its only field: no DEL needed.
local function give(key, owner) return redis.call('HDEL', key, owner) == 1 end
local function a_holder(key) return redis.call('HRANDFIELD', key) end
local function is_owner(text) return string.match(text, '^[%x%-]+:%d+$') end
