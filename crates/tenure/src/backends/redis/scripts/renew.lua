-- KEYS: per claim lock, then note if it has one. ARGV: per claim owner, lease, 1 if it has a note.
-- Per claim 1 (extended) or 0 (gone).
local answers, k = {}, 1
for i = 1, #ARGV, 3 do
  local held, refusal = one_of_many(mine, KEYS[k], ARGV[i])
  if refusal then return refusal end
  held = held == true
  answers[#answers + 1] = held and redis.call('PEXPIRE', KEYS[k], ARGV[i + 1]) or 0
  k = k + 1
  if ARGV[i + 2] == '1' then
    if held then redis.call('PEXPIRE', KEYS[k], ARGV[i + 1]) end
    k = k + 1
  end
end
return answers
