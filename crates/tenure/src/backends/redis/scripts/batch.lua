-- One key that somebody turned into another type must not fail the whole batch: that hold is gone. An answer, or a refusal.
local function one_of_many(extend, ...)
  local fine, answer = pcall(extend, ...)
  if fine then return answer end
  local refusal = type(answer) == 'table' and answer or redis.error_reply(answer)
  if string.find(refusal.err, 'WRONGTYPE', 1, true) then return 0 end
  return nil, refusal
end
