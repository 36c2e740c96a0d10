-- Makes the first in line the holder, and tells it its token: it need not ask. One that nobody hears of has died, or has yet to
-- listen, and asks then. Until it renews, it has the lock for no longer than its place: a dead one costs what it cost in line.
-- KEYS: as fair_release.lua has them.
local function hand_over(head, ends, t, idle, verb, channel)
  local at = millis(t)
  local lock, left = KEYS[1], tonumber(ends) - at + 5
  local fine, top = pcall(next_token, KEYS[2], 1, idle, '', t)
  -- Whoever asks is told what is wrong.
  if not fine or type(top) == 'table' or take(lock, head, left) then return say(verb, channel, head, 'call') end
  local heard = say(verb, channel, head, 'grant', top, ends)
  if not heard or heard == 0 then
    give(lock, head)
  else
    serve_first(KEYS[3], KEYS[4], KEYS[5], head, at, left)
  end
  return heard
end

-- The lock may have come free: whoever is next has it, or is called. False if nobody could be told.
local function pass_on(idle, verb, channel)
  local line, ours = KEYS[3], KEYS[5]
  local head = redis.call('LINDEX', line, '0')
  if not head or redis.call('EXISTS', KEYS[1]) == 1 then return true end
  local t = redis.call('TIME')
  local at = millis(t)
  local function keeps_place(owner)
    local ends = is_ours(owner) and redis.call('ZSCORE', ours, owner)
    return ends and tonumber(ends) > at and ends
  end
  local ends = keeps_place(head)
  if not ends and evict(line, KEYS[4], ours, at) then
    head = redis.call('LINDEX', line, '0')
    if not head then return true end
    ends = keeps_place(head)
  end
  if ends then return hand_over(head, ends, t, idle, verb, channel) end
  return say(verb, channel, head, 'call')
end
