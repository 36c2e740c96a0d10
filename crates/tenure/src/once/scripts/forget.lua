-- KEYS: record. ARGV: token.
-- The token of the record that is there afterwards, or nothing.
local token = token_of(KEYS[1])
if token ~= ARGV[1] then return token end
redis.call('DEL', KEYS[1])
return false
