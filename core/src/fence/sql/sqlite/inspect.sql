SELECT CASE
        WHEN NOT is_table THEN 'it is not a table'
        WHEN strange IS NOT NULL THEN NULL
        WHEN instr(coalesce(resource, ''), 'INT') OR NOT (instr(coalesce(resource, ''), 'CHAR')
            OR instr(coalesce(resource, ''), 'TEXT') OR instr(coalesce(resource, ''), 'CLOB'))
            THEN coalesce('its column resource is ' || nullif(resource, '') || ', not TEXT',
                'it has no column resource TEXT')
        WHEN NOT is_key THEN 'its column resource is not a key that is compared byte by byte'
        WHEN NOT instr(coalesce(token, ''), 'INT')
            THEN coalesce('its column token is ' || nullif(token, '') || ', not INTEGER',
                'it has no column token INTEGER')
    END AS wrong,
    strange
FROM (
    SELECT m.type = 'table' AS is_table,
        (SELECT upper(type) FROM pragma_table_info(m.name) WHERE name = 'resource') AS resource,
        (SELECT upper(type) FROM pragma_table_info(m.name) WHERE name = 'token') AS token,
        EXISTS (SELECT 1 FROM pragma_index_list(m.name) AS l
            WHERE l."unique" AND NOT l.partial
            AND (SELECT group_concat(x.name || ' ' || x.coll) FROM pragma_index_xinfo(l.name) AS x
                WHERE x."key") = 'resource BINARY') AS is_key,
        coalesce(
            (SELECT 'has the trigger ' || g.name FROM sqlite_schema AS g
                WHERE g.type = 'trigger' AND lower(g.tbl_name) = 'leasehold_fence'),
            (SELECT 'has a default or an expression for the column ' || x.name
                FROM pragma_table_xinfo(m.name) AS x WHERE x.hidden <> 0 OR x.dflt_value IS NOT NULL),
            (SELECT 'has a foreign key to ' || f."table" FROM pragma_foreign_key_list(m.name) AS f)
        ) AS strange
    FROM sqlite_schema AS m WHERE m.name = 'leasehold_fence' AND m.type IN ('table', 'view')
) AS found
