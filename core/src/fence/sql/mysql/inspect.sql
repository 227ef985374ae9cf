SELECT CONVERT(LOWER(t.table_type) USING utf8mb4) AS kind,
    CONVERT(LOWER(t.engine) USING utf8mb4) AS engine,
    CONVERT(LOWER(r.data_type) USING utf8mb4) AS resource,
    CONVERT(LOWER(r.character_set_name) USING utf8mb4) AS encoding,
    CAST(r.character_octet_length AS SIGNED) AS length,
    CONVERT(LOWER(k.data_type) USING utf8mb4) AS token,
    COALESCE(k.column_type LIKE '%unsigned%' OR r.is_nullable = 'YES'
        OR k.is_nullable = 'YES', 0) > 0 AS inexact,
    EXISTS (SELECT 1 FROM information_schema.statistics s
        WHERE s.table_schema = t.table_schema AND s.table_name = t.table_name
        AND s.non_unique = 0 GROUP BY s.index_name
        HAVING COUNT(*) = 1 AND MAX(s.column_name) = 'resource' AND MAX(s.sub_part) IS NULL) > 0
        AS is_key
FROM information_schema.tables t
LEFT JOIN information_schema.columns r ON r.table_schema = t.table_schema
    AND r.table_name = t.table_name AND r.column_name = 'resource'
LEFT JOIN information_schema.columns k ON k.table_schema = t.table_schema
    AND k.table_name = t.table_name AND k.column_name = 'token'
WHERE t.table_schema = DATABASE() AND t.table_name = 'leasehold_fence'
