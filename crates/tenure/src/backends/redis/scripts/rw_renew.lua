-- KEYS: per claim lock, notes, share of this reader; a writer has the lock in its place. ARGV: per claim owner, lease.
-- Per claim 1 (extended), 0 (gone) or why it was refused.
local answers = {}
local function extend(lock, notes, share, owner, lease)
  if redis.call('HEXISTS', lock, owner .. ':write') == 1 then
    redis.call('PEXPIRE', lock, lease)
  elseif share ~= lock and redis.call('HEXISTS', lock, owner) == 1 and redis.call('PEXPIRE', share, lease) == 1 then
    if redis.call('PTTL', lock) < tonumber(lease) then redis.call('PEXPIRE', lock, lease) end
  else
    return 0
  end
  if redis.call('PTTL', notes) < tonumber(lease) then redis.call('PEXPIRE', notes, lease) end
  return 1
end
for i = 1, #ARGV, 2 do
  local k = (i - 1) / 2 * 3
  local held, refusal = one_of_many(extend, KEYS[k + 1], KEYS[k + 2], KEYS[k + 3], ARGV[i], ARGV[i + 1])
  if refusal then return refusal end
  answers[#answers + 1] = held
end
return answers
