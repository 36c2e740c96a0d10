
-- ARGV, further: by how much. Returns the largest token seen, what is there now, and whether it was taken.
local by = ARGV[3]
local have = redis.call('GET', KEYS[2]) or '0'
local sign, digits = string.match(have, '^(-?)([1-9]%d*)$')
if have ~= '0' and (not digits or more(digits, sign == '' and '9223372036854775807' or '9223372036854775808')) then
  return redis.error_reply('FOREIGN the key holds no whole number')
end
raise()
if sign == '-' or more(by, have) then return {token, have, '0'} end
-- Read again, because what DECRBY returns is one of Lua's numbers here.
if by ~= '0' then
  redis.call('DECRBY', KEYS[2], by)
  have = redis.call('GET', KEYS[2])
end
return {token, have, '1'}
