-- Those who share a name have a token and a note each: a hash of owners.
local function token_of(notes, owner)
  local note = redis.call('HGET', notes, owner)
  return note and string.match(note, '^%d+')
end
