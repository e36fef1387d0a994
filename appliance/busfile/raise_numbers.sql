-- For a file that has taken the place of another one: numbers of messages and fences continue above
-- those that the other one gave out. The time in microseconds is above them.
UPDATE sqlite_sequence SET seq = max(seq, CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER))
WHERE name = 'messages';
UPDATE x_bus SET fence = CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER);
UPDATE x_fences SET fence = max(fence, (SELECT fence FROM x_bus));
