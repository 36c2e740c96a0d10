
-- SET and DEL would take any other type away without a word.
local kind = redis.call('TYPE', KEYS[2]).ok
if kind ~= 'string' and kind ~= 'none' then return redis.error_reply('WRONGTYPE the key holds no string but a ' .. kind) end
