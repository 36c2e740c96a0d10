-- Extends one of many: its answer, or in words why that was refused, which costs the others nothing. A key that somebody turned
-- into another type is a hold that is gone. Besides, what the server refuses to everybody.
local function one_of_many(extend, ...)
  local fine, answer = pcall(extend, ...)
  if fine then return answer end
  local refusal = type(answer) == 'table' and answer or redis.error_reply(answer)
  if string.find(refusal.err, 'WRONGTYPE', 1, true) then return 0 end
  -- Whoever asks has to look for another server.
  if string.find(refusal.err, 'READONLY', 1, true) then return nil, refusal end
  return refusal.err
end
