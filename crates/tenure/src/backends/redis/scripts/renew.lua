-- KEYS: per claim lock, then note if it has one. ARGV: per claim owner, lease, 1 if it has a note.
-- Per claim 1 (extended), 0 (gone) or why it was refused.
local answers, k = {}, 1
local function extend(lock, note, owner, lease)
  if not mine(lock, owner) then return 0 end
  local extended = redis.call('PEXPIRE', lock, lease)
  if note then redis.call('PEXPIRE', note, lease) end
  return extended
end
for i = 1, #ARGV, 3 do
  local noted = ARGV[i + 2] == '1'
  local answer, refusal = one_of_many(extend, KEYS[k], noted and KEYS[k + 1], ARGV[i], ARGV[i + 1])
  if refusal then return refusal end
  answers[#answers + 1] = answer
  k = k + (noted and 2 or 1)
end
return answers
