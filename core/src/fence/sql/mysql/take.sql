INSERT INTO leasehold_fence (resource, token) VALUES (?, ?)
ON DUPLICATE KEY UPDATE token = GREATEST(token, ?)
