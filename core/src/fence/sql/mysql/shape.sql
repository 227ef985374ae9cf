SELECT NULLIF(CONVERT(CONCAT_WS(', ', t.table_type, t.engine,
        (SELECT GROUP_CONCAT(CONCAT_WS(' ', c.column_name, REPLACE(c.column_type, 'bigint(20)', 'bigint'),
                IF(c.is_nullable = 'NO', 'NOT NULL', NULL), NULLIF(c.extra, ''),
                CONCAT('DEFAULT ', NULLIF(c.column_default, '')))
                ORDER BY c.ordinal_position SEPARATOR ', ')
            FROM information_schema.columns c
            WHERE c.table_schema = DATABASE() AND c.table_name = 'leasehold_fence'),
        (SELECT GROUP_CONCAT(CONCAT_WS(' ', 'key', s.index_name, s.column_name, s.sub_part)
                ORDER BY s.index_name, s.seq_in_index SEPARATOR ', ')
            FROM information_schema.statistics s
            WHERE s.table_schema = DATABASE() AND s.table_name = 'leasehold_fence'),
        (SELECT GROUP_CONCAT(n.constraint_type, ' ', n.constraint_name SEPARATOR ', ')
            FROM information_schema.table_constraints n WHERE n.table_schema = DATABASE()
            AND n.table_name = 'leasehold_fence' AND n.constraint_type <> 'PRIMARY KEY'),
        (SELECT GROUP_CONCAT('trigger ', g.trigger_name SEPARATOR ', ') FROM information_schema.triggers g
            WHERE g.event_object_schema = DATABASE() AND g.event_object_table = 'leasehold_fence')
    ) USING utf8mb4),
    'BASE TABLE, InnoDB, resource varbinary(512) NOT NULL, token bigint NOT NULL, '
    'tick bigint NOT NULL, key PRIMARY resource')
FROM information_schema.tables t
WHERE t.table_schema = DATABASE() AND t.table_name = 'leasehold_fence'
