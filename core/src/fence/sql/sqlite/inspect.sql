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
