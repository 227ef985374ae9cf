SELECT nullif(concat_ws(', ',
        CASE WHEN c.relkind = 'r' AND c.relpersistence = 'p' THEN 'table' ELSE 'no permanent table' END,
        (SELECT string_agg(concat_ws(' ', a.attname, concat(y.typnamespace::regnamespace, '.', y.typname),
                'collate ' || l.collname, CASE WHEN a.attnotnull THEN 'not null' END,
                'identity ' || nullif(a.attidentity::text, ''), 'default ' || pg_get_expr(d.adbin, d.adrelid)),
                ', ' ORDER BY a.attnum)
            FROM pg_attribute a JOIN pg_type y ON y.oid = a.atttypid
            LEFT JOIN pg_collation l ON l.oid = a.attcollation
            LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
        (SELECT string_agg(part, ', ' ORDER BY part) FROM (
            SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = c.oid AND contype <> 'n'
            UNION ALL SELECT 'index ' || indexrelid::regclass FROM pg_index
                WHERE indrelid = c.oid AND NOT indisprimary
            UNION ALL SELECT 'trigger ' || tgname FROM pg_trigger WHERE tgrelid = c.oid AND NOT tgisinternal
            UNION ALL SELECT 'rule ' || rulename FROM pg_rewrite WHERE ev_class = c.oid
            UNION ALL SELECT 'inheritance' FROM pg_inherits WHERE c.oid IN (inhrelid, inhparent)
            UNION ALL SELECT 'row security' WHERE c.relrowsecurity OR c.relforcerowsecurity
            UNION ALL SELECT 'owner ' || o.rolname
                FROM pg_roles o, pg_roles me, pg_namespace s, pg_database b
                WHERE o.oid = c.relowner AND me.rolname = current_user AND s.oid = c.relnamespace
                AND b.datname = current_database() AND NOT o.rolsuper
                AND o.oid NOT IN (me.oid, s.nspowner, b.datdba)
                AND (me.rolsuper OR NOT pg_has_role(me.oid, o.oid, 'MEMBER'))
        ) AS parts (part))),
    'table, resource pg_catalog.text collate C not null, token pg_catalog.int8 not null, '
        'tick pg_catalog.int8 not null, PRIMARY KEY (resource)')
FROM pg_class c WHERE c.oid = to_regclass('leasehold_fence')
