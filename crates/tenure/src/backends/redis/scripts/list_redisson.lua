-- Looks through some of the server's keys for what may be held. ARGV: cursor, how many keys, what names begin with, 1 if permits
-- are listed beside a counter. {next cursor, keys: of locks, and of lists of held permits}
-- A key that this user may not look at, or that has just moved to another server, is not listed.
local found, keys = redis.call('SCAN', ARGV[1], 'COUNT', ARGV[2]), {}
local function is_lock(key)
  local field = redis.pcall('HRANDFIELD', key)
  return field == 'mode' or type(field) == 'string' and string.find(field, '^%x+%-%x+%-%x+%-%x+%-%x+:%d+')
end
local function is_permits(key)
  local first = redis.pcall('ZRANGE', key, 0, 0)
  return first[1] and #first[1] == 16
end
local function is_named_like_permits(key)
  if ARGV[4] == '1' then return string.sub(key, 1, 15) == 'tenure_permits:' end
  return string.sub(key, -8) == ':timeout'
end
for _, key in ipairs(found[2]) do
  if is_named_like_permits(key) and redis.pcall('TYPE', key).ok == 'zset' then
    if is_permits(key) then keys[#keys + 1] = key end
  elseif #key <= 512 and string.sub(key, 1, #ARGV[3]) == ARGV[3] and redis.pcall('TYPE', key).ok == 'hash' and is_lock(key) then
    keys[#keys + 1] = key
  end
end
return {found[1], keys}
