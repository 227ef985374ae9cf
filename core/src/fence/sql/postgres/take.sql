INSERT INTO leasehold_fence AS fence (resource, token, tick) VALUES ($1::text, $2::bigint, 0)
ON CONFLICT (resource) DO UPDATE SET token = EXCLUDED.token
WHERE fence.token <= EXCLUDED.token RETURNING token, txid_current()
