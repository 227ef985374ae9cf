INSERT INTO leasehold_fence (resource, token) VALUES (CAST(? AS BINARY), ?)
ON DUPLICATE KEY UPDATE token = GREATEST(token, ?)
