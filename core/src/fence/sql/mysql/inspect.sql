SELECT CONVERT(CASE
        WHEN kind <> 'base table' THEN 'it is not a table'
        WHEN strange IS NOT NULL THEN NULL
        WHEN NOT COALESCE(CASE WHEN encoding IS NULL THEN resource = 'varbinary'
            ELSE resource = 'varchar' AND encoding IN ('ascii', 'utf8mb3', 'utf8mb4') END, 0)
            THEN COALESCE(CONCAT('its column resource is ', resource, ', not VARBINARY(512)'),
                'it has no column resource VARBINARY(512)')
        WHEN NOT is_key THEN 'its column resource is not a key'
        WHEN COALESCE(token, '') NOT IN ('bigint', 'int', 'mediumint', 'smallint', 'tinyint')
            THEN COALESCE(CONCAT('its column token is ', token, ', not BIGINT'),
                'it has no column token BIGINT')
    END USING utf8mb4) AS wrong,
    strange,
    NOT COALESCE(token = 'bigint' AND resource = 'varbinary' AND length >= 512 AND NOT inexact
        AND engine = 'innodb', 0) AS older
FROM (
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
            AS is_key,
        CONVERT(COALESCE(
            (SELECT CONCAT('has the trigger ', MIN(g.trigger_name)) FROM information_schema.triggers g
                WHERE g.event_object_schema = t.table_schema AND g.event_object_table = t.table_name),
            (SELECT CONCAT('has a default or an expression for the column ', MIN(c.column_name))
                FROM information_schema.columns c WHERE c.table_schema = t.table_schema
                AND c.table_name = t.table_name AND (c.extra LIKE '%GENERATED%'
                OR c.column_default IS NOT NULL AND c.column_default NOT IN ('NULL', ''))),
            (SELECT CONCAT('has the constraint ', MIN(n.constraint_name))
                FROM information_schema.table_constraints n WHERE n.table_schema = t.table_schema
                AND n.table_name = t.table_name AND n.constraint_type NOT IN ('PRIMARY KEY', 'UNIQUE'))
        ) USING utf8mb4) AS strange
    FROM information_schema.tables t
    LEFT JOIN information_schema.columns r ON r.table_schema = t.table_schema
        AND r.table_name = t.table_name AND r.column_name = 'resource'
    LEFT JOIN information_schema.columns k ON k.table_schema = t.table_schema
        AND k.table_name = t.table_name AND k.column_name = 'token'
    WHERE t.table_schema = DATABASE() AND t.table_name = 'leasehold_fence'
) AS found
