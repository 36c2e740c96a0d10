-- What is known of a name. {ms left, token, note, line, free permits, count, holders}; a holder is {owner, ms left, how, note}.
-- KEYS: lock, token, note, notes or owners, line, held permits. `prefix` stands before a reader in its share's name.
-- Notes for so many bytes in all: those of thousands would be more than one answer may have. Of the others only what stands before.
local NOTES_BYTES = 8 * 1024 * 1024
local function describe(prefix)
  local room = NOTES_BYTES
  local function note_of(owner)
    local note = redis.call('HGET', KEYS[4], owner)
    if not note then return note end
    room = room - #note
    return room >= 0 and note or string.match(note, '^%d+ %x+ ') or string.match(note, '^%d+ ') or false
  end
  local at = now()
  local left = redis.call('PTTL', KEYS[1])
  local token = redis.call('GET', KEYS[2])
  local line = redis.call('LRANGE', KEYS[5], 0, 999)
  local state = {left, token, redis.call('GET', KEYS[3]), line, false, false, {}}
  local kind = redis.call('TYPE', KEYS[1]).ok
  local holders = state[7]
  if kind == 'hash' then
    local mode = redis.call('HGET', KEYS[1], 'mode')
    local count = redis.call('HLEN', KEYS[1])
    -- No answer has room for all of them, and one without some would lie.
    if mode and count > 65536 then return redis.error_reply('ERR too many hold it to be named: ' .. count - 1) end
    -- A lock's hash is small unless many read; another's may hold millions of fields.
    local fields = (mode or count <= 4096) and redis.call('HKEYS', KEYS[1]) or {'?'}
    for _, field in ipairs(fields) do
      local writer = mode and string.match(field, '^(.*):write$')
      if writer then
        holders[#holders + 1] = {writer, left, 'write', note_of(writer)}
      elseif not mode then
        holders[#holders + 1] = {field, left, 'lock', false}
      elseif field ~= 'mode' then
        local reader = reader_left(KEYS[1], prefix, field)
        if reader ~= -2 then holders[#holders + 1] = {field, reader, 'read', note_of(field)} end
      end
    end
  elseif kind == 'string' then
    local free = tonumber(redis.call('GET', KEYS[1]))
    if not free then return redis.error_reply('FOREIGN the key is not a lock of this layout') end
    -- A number alone may be that of a semaphore or of a latch. Only the former has had a token.
    if not token then state[6] = free end
    local expired = redis.call('ZCOUNT', KEYS[6], 0, at)
    state[5] = free + expired
    for _, owner in ipairs(redis.call('HKEYS', KEYS[4])) do
      if owner ~= MADE then holders[#holders + 1] = {owner, -2, 'owner', note_of(owner)} end
    end
    local held = redis.call('ZRANGE', KEYS[6], '(' .. at, '+inf', 'BYSCORE', 'WITHSCORES')
    for i = 1, #held, 2 do
      holders[#holders + 1] = {hex(held[i]), math.min(tonumber(held[i + 1]) - at, 2 ^ 52), 'permit', false}
    end
  elseif kind ~= 'none' then
    return redis.error_reply('WRONGTYPE the key is a ' .. kind .. ' and no lock')
  end
  return state
end
