-- KEYS: as described. ARGV: what stands before a reader in its share's name, idle time of tokens, how to publish, the least that
-- the fence may be or nothing, channels of the lock, the read/write lock and the permits.
-- {new fence, what was there} or nothing if nobody holds it: then the fence is raised if that says how far.
local was = describe(ARGV[1])
if was.err then return was end
local kind = redis.call('TYPE', KEYS[1]).ok
for _, holder in ipairs(was[7]) do
  local owner, how = holder[1], holder[3]
  local foreign = how ~= 'permit' and not is_owner(owner)
  if foreign or kind == 'hash' and was[1] == -1 then return redis.error_reply('FOREIGN the key is not a lock of this layout') end
end
local held = 0
for _, holder in ipairs(was[7]) do if holder[3] ~= 'owner' then held = held + 1 end end
if held == 0 and ARGV[4] == '' then return false end
local fence = next_token(KEYS[2], 1, ARGV[2], ARGV[4])
if type(fence) == 'table' then return fence end
if held == 0 then return false end
if kind == 'string' then
  local all = redis.call('ZCARD', KEYS[6])
  redis.call('DEL', KEYS[6])
  for _, holder in ipairs(was[7]) do
    if holder[3] == 'owner' then redis.call('HDEL', KEYS[4], holder[1]) end
  end
  local free = redis.call('INCRBY', KEYS[1], all)
  if free > 0 then tell(ARGV[3], ARGV[7], free) end
else
  for _, holder in ipairs(was[7]) do
    if holder[3] == 'read' then redis.call('DEL', share(ARGV[1], holder[1], 1)) end
  end
  redis.call('DEL', KEYS[1], KEYS[3], KEYS[4])
  if was[7][1][3] == 'lock' then
    tell(ARGV[3], ARGV[5])
    if was[4][1] then say(ARGV[3], ARGV[5], was[4][1], 'call') end
  else
    tell_all(ARGV[3], ARGV[6])
  end
end
return {fence, was}
