-- KEYS and answer: as described. ARGV: what stands before a reader in its share's name.
return describe(ARGV[1])
