-- KEYS: leases in use. ARGV: the longest that this client will ask for, in ms.
-- {id of the server's process, for how many seconds it runs, 1 if it is a master, its clock in s and us, leases: each in ms, and
-- for how many ms it has been in use}
local function told(section, pattern)
  local info = redis.pcall('INFO', section)
  if type(info) ~= 'table' then return string.match(info, pattern) end
  return nil, redis.error_reply('NOPERM this user may not ask who answers; allowed: one with +info (' .. info.err .. ')')
end
local id, refused = told('server', 'run_id:(%w+)')
if refused then return refused end
local up, role = told('server', 'uptime_in_seconds:(-?%d+)'), told('replication', 'role:(%a+)')
local clock = redis.call('TIME')
local at = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- Written as lease:first:last. One that nobody has come with for long is no longer in use.
local mine, leases, most = tonumber(ARGV[1]), {}, 0
-- A lock may have that name; then nothing can be told, nor must be written.
local stored = redis.pcall('GET', KEYS[1])
local foreign = type(stored) == 'table'
for lease, first, last in string.gmatch(not foreign and stored or '', '(%d+):(%d+):(%d+)') do
  local entry = {tonumber(lease), tonumber(first), tonumber(last)}
  if entry[3] + 2 * entry[1] + 3600000 >= at then leases[#leases + 1] = entry end
end
table.sort(leases, function(a, b) return a[1] < b[1] end)
local same
for _, entry in ipairs(leases) do
  -- With very many, a longer one stands for it.
  if entry[1] == mine or (#leases >= 32 and entry[1] > mine and not same) then same = entry end
end
if not same then
  if #leases >= 32 then
    same = leases[#leases]
    same[1] = mine
  else
    same = {mine, at, at}
    leases[#leases + 1] = same
  end
end
same[3] = at
local words, answer = {}, {}
for _, entry in ipairs(leases) do
  most = math.max(most, entry[1])
  words[#words + 1] = string.format('%.0f:%.0f:%.0f', entry[1], entry[2], entry[3])
  answer[#answer + 1] = entry[1]
  -- By a clock that was set back since, it is as old as can be.
  answer[#answer + 1] = at >= entry[2] and at - entry[2] or at
end
-- A replica must not write, and what it copies is not its own.
if role == 'master' and not foreign then redis.call('SET', KEYS[1], table.concat(words, ' '), 'PX', 2 * most + 3600000) end
-- By its wall clock, which may have been set back since it was started: then it is as if it had just been.
local age = up and math.max(tonumber(up), 0) or -1
return {id or '', age, role == 'master' and 1 or 0, tonumber(clock[1]), tonumber(clock[2]), answer}
