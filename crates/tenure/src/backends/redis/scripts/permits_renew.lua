-- KEYS: per claim number, held, owners; or held three times where only that may be named. ARGV: per claim lease, life of the keys, how many ids, ids...
-- Per claim 1 (extended), 0 (gone) or why it was refused.
local answers, i, k, at = {}, 1, 1, now()
local function extend(number, held, owners, first, count)
  if count_held(held, first, first + count - 1, at) < count then return 0 end
  local until_ = string.format('%.0f', at + tonumber(ARGV[first - 3]))
  -- First what needs no memory: a full server lets a script go on that has written already, and this needs none either.
  if number ~= held then
    keep(number, held, owners, ARGV[first - 2])
  else
    local left = redis.call('PTTL', held)
    if left >= 0 and left < tonumber(ARGV[first - 3]) then redis.call('PEXPIRE', held, ARGV[first - 3]) end
  end
  for id = first, first + count - 1 do redis.call('ZADD', held, 'XX', until_, raw(ARGV[id])) end
  return 1
end
while i <= #ARGV do
  local count = tonumber(ARGV[i + 2])
  local extended, refusal = one_of_many(extend, KEYS[k], KEYS[k + 1], KEYS[k + 2], i + 3, count)
  if refusal then return refusal end
  answers[#answers + 1] = extended
  i, k = i + 3 + count, k + 3
end
return answers
