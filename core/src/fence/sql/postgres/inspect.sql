SELECT c.relkind = 'r' AND c.relpersistence = 'p' AS permanent,
    format_type(r.atttypid, NULL) AS resource, format_type(t.atttypid, NULL) AS token,
    coalesce(r.atttypmod = -1 AND r.attnotnull AND t.attnotnull AND l.collname = 'C', false)
        AS exact,
    EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisunique
        AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indnkeyatts = 1
        AND i.indkey[0] = r.attnum) AS is_key
FROM pg_class c
LEFT JOIN pg_attribute r ON r.attrelid = c.oid AND r.attname = 'resource'
LEFT JOIN pg_attribute t ON t.attrelid = c.oid AND t.attname = 'token'
LEFT JOIN pg_collation l ON l.oid = r.attcollation
WHERE c.oid = to_regclass('leasehold_fence')
