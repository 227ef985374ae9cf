INSERT INTO leasehold_fence (resource, token, tick) VALUES (?, ?, 0)
ON CONFLICT (resource) DO UPDATE SET token = excluded.token
WHERE leasehold_fence.token <= excluded.token RETURNING token
