-- As list_redisson.lua, of string locks. Any string could be one: only those with a token of ours are listed, by that.
local found, keys = redis.call('SCAN', ARGV[1], 'MATCH', 'tenure_lock_token:*', 'COUNT', ARGV[2]), {}
for _, key in ipairs(found[2]) do
  local name = string.sub(key, 19)
  name = string.match(name, '^{([^{]*)}$') or name
  if string.sub(name, 1, #ARGV[3]) == ARGV[3] then
    local left = redis.pcall('PTTL', name)
    if type(left) == 'number' and left >= 0 then keys[#keys + 1] = key end
  end
end
return {found[1], keys}
