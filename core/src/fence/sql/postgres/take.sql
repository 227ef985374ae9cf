INSERT INTO leasehold_fence AS fence (resource, token) VALUES ($1, $2)
ON CONFLICT (resource) DO UPDATE SET token = EXCLUDED.token
WHERE fence.token <= EXCLUDED.token RETURNING token
