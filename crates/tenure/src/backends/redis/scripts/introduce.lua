-- KEYS: the longest lease. ARGV: the longest that this client will ask for.
-- {id of the server's process, for how many seconds it runs, 1 if it is a master, its clock in s and us, the longest lease of all}
local function told(section, pattern)
  local info = redis.pcall('INFO', section)
  if type(info) ~= 'table' then return string.match(info, pattern) end
  return nil, redis.error_reply('NOPERM this user may not ask who answers; allowed: one with +info (' .. info.err .. ')')
end
local id, refused = told('server', 'run_id:(%w+)')
if refused then return refused end
local up, role = told('server', 'uptime_in_seconds:(-?%d+)'), told('replication', 'role:(%a+)')
local clock = redis.call('TIME')
local longest = math.max(tonumber(ARGV[1]), tonumber(redis.call('GET', KEYS[1])) or 0)
-- A replica must not write, and what it copies is not its own.
if role == 'master' then redis.call('SET', KEYS[1], longest, 'PX', 2 * longest + 3600000) end
-- By its wall clock, which may have been set back since it was started: then it is as if it had just been.
local age = up and math.max(tonumber(up), 0) or -1
return {id or '', age, role == 'master' and 1 or 0, tonumber(clock[1]), tonumber(clock[2]), longest}
