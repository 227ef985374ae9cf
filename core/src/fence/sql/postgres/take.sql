INSERT INTO leasehold_fence AS fence (resource, token) VALUES ($1::text, $2::bigint)
ON CONFLICT (resource) DO UPDATE SET token = EXCLUDED.token
WHERE fence.token <= EXCLUDED.token RETURNING token, txid_current()
