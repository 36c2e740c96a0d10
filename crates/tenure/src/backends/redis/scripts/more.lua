-- Tokens are decimal strings, because Lua's numbers end at 2^53. Whether one is larger than another; nothing is the smallest.
local function more(a, b) return #a > #b or #a == #b and a > b end

