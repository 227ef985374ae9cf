UPDATE leasehold_fence SET tick = $1::bigint
WHERE resource = $2::text AND tick < $1::bigint RETURNING tick
