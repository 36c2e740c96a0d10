-- KEYS: writers in line. ARGV: owner. Says whether it was among them.
return leave_line(KEYS[1], ARGV[1])
