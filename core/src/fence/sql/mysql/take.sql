INSERT INTO leasehold_fence (resource, token, tick) VALUES (CAST(? AS BINARY), ?, 0)
ON DUPLICATE KEY UPDATE token = GREATEST(token, ?)
